/* tessera serve: a server of OpenAI's HTTP API on rank 0. libmicrohttpd's thread reads requests
 * (http.c), request.c checks them, and the main thread generates their texts together (schedule.c),
 * with the other ranks. */
#ifndef TSR_CLI_SERVE_SERVE_H
#define TSR_CLI_SERVE_SERVE_H

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "cli/inference/inference.h"
#include "cli/lib/growing.h"
#include "cli/lib/json.h"
#include "cli/lib/say.h"

/* Options -------------------------------------------------------------------------------------- */

typedef struct serve_options {
    const char *host, *name, *api_key_file, *tls_cert, *tls_key;
    int64_t port, parallel, queue, body_limit, connections;
    int64_t piece, cache_tokens;  /* 0: parallel · context */
    double grace, deadline;       /* seconds; deadline 0: there is none */
    double lost_after, send_time; /* seconds */
    bool no_api_key, no_prefix_cache;
} serve_options;

extern serve_options serve_chosen;
/* Reads the arguments into serve_chosen and inference_chosen. Returns an exit code. */
int serve_options_read(int argc, char **argv);
/* Prints the lines of the command's help that describe its options. */
void serve_options_help(FILE *out);

/* Text ----------------------------------------------------------------------------------------- */

/* Copies as much of a text as there is room for; bytes that are not UTF-8 become '?'. */
void serve_copy_utf8(char *to, size_t size, const char *text);
/* Returns whether bytes are UTF-8, as strings of JSON must be. */
bool serve_is_utf8(const char *text, size_t size);

/* Requests ------------------------------------------------------------------------------------- */

typedef struct serve_server serve_server;
typedef struct serve_readers serve_readers;
typedef struct serve_sender serve_sender;

/* Why a request was refused: a status of HTTP, and a sentence. */
typedef struct serve_problem {
    unsigned status; /* 0: it was not refused */
    char message[512];
    char parameter[64]; /* the name of the parameter that is wrong; "": none */
} serve_problem;
void serve_refuse(serve_problem *problem, unsigned status, const char *parameter,
                  const char *format, ...) CLI_PRINTF(4, 5);

typedef struct serve_request serve_request;
typedef struct serve_grammar serve_grammar;

/* A text that a request wants, one of `n`. Only the main thread uses the members, except those
 * below, which the server's lock protects. */
typedef struct serve_choice {
    serve_request *request;
    int index;
    int sequence;    /* of the generator; −1: it waits */
    int32_t *tokens; /* [generated]: what the generator has given */
    int64_t capacity;
    tsr_text_stream *stream;      /* NULL: no token has come yet */
    tsr_decode_state decoding;    /* for the texts of single tokens */
    json_t *log_probabilities;    /* of tokens whose text has not been sent yet; NULL: none */
    double last_token;            /* of serve_now */
    struct serve_choice *next;    /* in the queue */
    const char *finish_reason;    /* NULL: it goes on. Here begins what the lock protects */
    int64_t generated, cached;    /* tokens; `cached` ones of the prompt */
    cli_text answer, reasoning;   /* without `stream`: the whole text */
    json_t *calls;                /* as a list of tool_calls; NULL: none */
    cli_text before[2], after[2]; /* the text in an event of the answer, and of the reasoning */
    /* The rest is for calls.c: text that may be calls, and the arguments of the call that is open;
     * where the text is, and how many spaces are before it; in JSON, how many brackets are open and
     * whether a string is; whether text before calls has been given out. */
    cli_text held, arguments;
    int step, depth;
    size_t spaces;
    bool call_open, in_string, escaped, preamble;
} serve_choice;

/* Whether a reply may be, or must be, calls of tools. */
typedef enum serve_tool_choice {
    SERVE_TOOLS_AUTO,
    SERVE_TOOLS_NONE,
    SERVE_TOOLS_REQUIRED
} serve_tool_choice;

/* What a client wants. The members up to `choice_count` do not change; the server's lock protects
 * the others. */
struct serve_request {
    char id[40];
    int64_t created; /* in seconds since 1970 */
    bool chat, stream, include_usage;
    int32_t *ids;
    int64_t id_count;
    tsr_sampling_params sampling;
    tsr_logit_bias *biases; /* [sampling.bias_count] */
    bool log_probabilities;
    int top_log_probabilities;
    int64_t max_tokens; /* 0: until the context is full */
    const char **stops; /* point into `body` */
    int stop_count;
    json_t *body;           /* only the members into which the request points */
    serve_grammar *grammar; /* NULL: any text */
    const json_t *tools;    /* points into `body`; NULL: none */
    serve_tool_choice tool_choice;
    const char *tool_name; /* the tool that must be called; NULL: any */
    int adapter;           /* of inference_chosen; −1: none */
    tsr_chat_reasoning reasoning;
    int choice_count;

    serve_choice *choices; /* [choice_count] */
    int left;              /* choices that have not ended */
    int begun;             /* of these, choices that have left the queue */
    bool waits;            /* none of its choices has begun: it counts as waiting */
    int users;             /* the connection and the schedule; the last one frees the request */
    bool ended;
    bool cancelled;                   /* the client has gone */
    double arrived;                   /* of serve_now */
    cli_text events;                  /* with `stream`: events, the last of which wait to be sent */
    size_t events_read;               /* bytes of `events` that have been sent */
    serve_problem failed;             /* the server could not complete the texts */
    struct MHD_Connection *suspended; /* waits for more events, or for the end */
    int socket;                       /* the connection's; −1: it was closed */
};

/* Makes a request of the body of POST /v1/chat/completions (`chat`) or /v1/completions. Returns
 * NULL and sets *problem if the body is wrong. The caller uses the request until
 * serve_request_leave. */
serve_request *serve_request_read(const serve_server *server, bool chat, const char *body,
                                  size_t size, serve_problem *problem);
/* Ends one of the two uses of a request. Needs the lock. */
void serve_request_leave(serve_request *request);

/* Grammars (grammars.c) --------------------------------------------------------------------------
 */

/* The rule of a grammar that is the whole reply, with the reasoning before the answer. */
#define SERVE_REPLY_RULE "tessera-reply"
/* Compiles a grammar in GBNF, or finds it among those that are kept. The caller uses it until
 * serve_grammar_leave; NULL is allowed there. Threads: any. */
tsr_status serve_grammar_get(const serve_server *server, const char *text, size_t size,
                             serve_grammar **out);
void serve_grammar_leave(serve_grammar *grammar);
/* Destroys those that nobody uses. */
void serve_grammars_finish(void);
/* Only the main thread may use the result. */
tsr_grammar *serve_grammar_of(const serve_grammar *grammar);
/* Write a grammar or NULL to the orders of a step, and get it on any rank. */
void serve_grammar_write(const serve_grammar *grammar, cli_text *out);
tsr_status serve_grammar_read(const serve_server *server, const char **at, serve_grammar **out);
/* Writes the grammars that rank 0 has begun to compile to the orders of a step, and returns their
 * number; NULL: there are no other ranks. On these, each one is compiled in a thread. */
int64_t serve_grammars_announce(cli_text *out);
void serve_grammar_hear(serve_server *server, const char **at);

/* Structure (structure.c) ------------------------------------------------------------------------
 */

/* Returns the format of messages; TSR_CHAT_MODEL if the model has none. */
tsr_chat_format serve_format(const serve_server *server);
/* Reads reasoning_effort and chat_template_kwargs. */
bool serve_read_reasoning(serve_request *request, serve_problem *problem);
/* Gives a request its grammar. `parameter` is where it comes from. */
bool serve_set_grammar(const serve_server *server, serve_request *request, const cli_text *text,
                       const char *parameter, serve_problem *problem);
/* Reads response_format and grammar. */
bool serve_read_structure(const serve_server *server, serve_request *request,
                          serve_problem *problem);

/* Tools (tools.c) --------------------------------------------------------------------------------
 */

/* Reads tools and tool_choice. */
bool serve_read_tools(const serve_server *server, serve_request *request, serve_problem *problem);
/* Makes a request call a tool, if tool_choice says so. */
bool serve_require_tools(const serve_server *server, serve_request *request,
                         serve_problem *problem);
/* Returns whether a conversation has tools, calls, results, or reasoning that the prompt keeps. */
bool serve_has_parts(const serve_server *server, const serve_request *request,
                     const json_t *messages);
/* Encodes such a conversation. */
bool serve_encode_parts(const serve_server *server, const json_t *messages, serve_request *request,
                        int32_t **ids, uint64_t *count, serve_problem *problem);
/* Adds text that the stream of a choice has given out last (calls.c): gives out the answer, the
 * reasoning, and calls of tools. Needs the lock, as does the next one. */
void serve_reply_add(const serve_server *server, serve_choice *choice, const char *text,
                     size_t size);
/* Ends the text of a choice; `whole`: the model has ended it. Returns whether it is calls. */
bool serve_reply_end(const serve_server *server, serve_choice *choice, bool whole);
/* The text of a message, for free(): a string, or a list of texts, which are concatenated. Returns
 * NULL if it is something else. */
char *serve_content_text(const json_t *content);

/* Refuses a text that is too long for the context whatever its tokens are, which is known without
 * encoding it. */
bool serve_check_bytes(const serve_server *server, size_t bytes, const char *parameter,
                       serve_problem *problem);

/* POST /tokenize and /detokenize. Return the answer, or NULL and set *problem. */
json_t *serve_tokenize(const serve_server *server, const char *body, size_t size,
                       serve_problem *problem);
json_t *serve_detokenize(const serve_server *server, const char *body, size_t size,
                         serve_problem *problem);

/* Replies (reply.c) ------------------------------------------------------------------------------
 */

json_t *serve_error_json(const serve_problem *problem);
/* The whole answer to a request that has ended. */
json_t *serve_reply_json(const serve_server *server, const serve_request *request);
json_t *serve_models_json(const serve_server *server);
/* The name of the model that a request has chosen. */
const char *serve_model_name(const serve_server *server, const serve_request *request);
/* Append one event of a stream: the first one of a chat's choice, a piece of text, the end of a
 * choice, and the last ones, which include "[DONE]". */
void serve_event_begin(const serve_server *server, serve_choice *choice);
void serve_event_text(const serve_server *server, serve_choice *choice, tsr_text_channel channel,
                      const char *text, size_t size);
/* The beginning of the last call, and a piece of its arguments. */
void serve_event_call(const serve_server *server, serve_choice *choice);
void serve_event_arguments(const serve_server *server, serve_choice *choice, const char *text,
                           size_t size);
void serve_event_finish(const serve_server *server, serve_choice *choice);
void serve_event_end(const serve_server *server, serve_request *request);
/* Adds a token to the log-probabilities of its choice, which are sent with its text. */
tsr_status serve_add_log_probability(const serve_server *server, serve_choice *choice,
                                     const tsr_generated *token);

/* Writes the page at /, and the policy for browsers that allows its own script only. */
void serve_page(cli_text *page, char *policy, size_t size);

/* Metrics (metrics.c) ----------------------------------------------------------------------------
 */

#define SERVE_BUCKETS 12
typedef struct serve_histogram {
    uint64_t counts[SERVE_BUCKETS + 1]; /* the last one counts what is above all bounds */
    double sum;
} serve_histogram;
typedef struct serve_metrics {
    uint64_t requests, refused, cancelled, failed, prompt_tokens, generated_tokens;
    uint64_t slow;          /* connections that were ended: see serve_end_slow_senders */
    uint64_t losses, joins; /* of ranks */
    serve_histogram first_token, per_token; /* in seconds */
    double steps, between_steps;            /* seconds in which texts ran: in steps, and outside */
} serve_metrics;
void serve_histogram_add(serve_histogram *histogram, double value);
/* Writes all metrics in Prometheus's text format. Needs the lock. */
void serve_metrics_write(const serve_server *server, cli_text *out);

/* What a rank has, as the page shows it. */
typedef struct serve_part {
    char device[64];
    uint64_t weight_bytes, memory_bytes; /* of the device: for weights, and for everything */
} serve_part;
/* What has happened to the ranks. */
#define SERVE_INCIDENTS 16
typedef struct serve_incident {
    int64_t time; /* in seconds since 1970 */
    char text[512];
} serve_incident;
json_t *serve_ranks_json(const serve_server *server);

/* The server -------------------------------------------------------------------------------------
 */

struct serve_server {
    inference_job job;
    tsr_tokenizer *tokenizer;
    tsr_generator *generator; /* NULL: the model could not be opened after a loss */
    int64_t longest_token;    /* bytes of the tokenizer's longest token; 0: unknown */
    const char *name;         /* the model's name in the API */
    char key[256];            /* "": no key is needed */
    struct MHD_Daemon *daemon;
    serve_readers *readers;
    cli_text page; /* what / shows */
    char policy[512];
    int port;         /* on which the server listens */
    bool listens;     /* this process is rank 0 of the start */
    int number;       /* the rank when the ranks met; −1: not yet */
    bool met, opened; /* the ranks have met, and opened the model, before */
    int vain_shrinks; /* without a loss, since the last loss */

    pthread_mutex_t lock; /* protects what follows */
    pthread_cond_t changed;
    bool ready;                  /* the model was loaded; these do not change any more: */
    int64_t context, vocabulary; /* tokens of the longest text, tokens that there are */
    bool stopping;               /* no request is accepted any more */
    bool closing;                /* no body is read any more */
    bool repairs;                /* the ranks have changed, and open the model again */
    double progress;             /* the part of the weights of this rank that have been read */
    char unavailable[512];       /* why the model could not be opened; "": it was */
    int ranks, wanted_ranks;     /* at present, and the most that there were */
    serve_part *parts;           /* [part_count]: the parts of the ranks */
    int part_count;
    serve_incident incidents[SERVE_INCIDENTS]; /* incident i is at i % SERVE_INCIDENTS */
    int incident_count;
    serve_choice *first, *last; /* the queue */
    int waiting, running;       /* texts */
    int waiting_requests;       /* of which no text has begun */
    int exchanges;              /* requests that have not been answered completely */
    serve_sender *senders;      /* the connections */
    int64_t bodies;             /* that wait for a reader, or are being read */
    size_t body_bytes;          /* of these, and of those that are being received */
    serve_metrics metrics;
    tsr_generator_stats stats;     /* after the last step */
    struct MHD_Connection **woken; /* [woken_count]: there is something to send on them */
    int woken_count, woken_capacity;

    struct MHD_Connection **waking; /* for the thread of all connections: those it wakes */
    int waking_capacity;
};

/* Starts to listen. Returns CLI_DONE, or prints what is wrong. */
int serve_http_start(serve_server *server);
/* Stops listening, waits some seconds for the answers that are being sent, and closes all
 * connections. */
void serve_http_stop(serve_server *server);
/* Lets serve_http_unlock wake the connection that waits for a request, if there is one. Needs the
 * lock. */
void serve_http_wake(serve_server *server, serve_request *request);
/* Releases the lock, and wakes one of these connections, whose thread then wakes the others: each
 * time the thread is woken costs the step that begins now. */
void serve_http_unlock(serve_server *server);
/* Returns whether the client of a request has closed its connection. Needs the lock. */
bool serve_http_is_closed(const serve_request *request);

/* Checks the headers Host and Origin, which may be NULL, of a request to a server without a key
 * (origin.c): others' pages must not use the server by the browser of somebody on this host. */
bool serve_check_origin(const char *host, const char *origin, serve_problem *problem);

/* How long clients take to send a request (senders.c). A connection has a sender from its begin
 * until before its socket is closed. NULL is allowed for all but the first. */
serve_sender *serve_sender_begin(serve_server *server, int socket);
void serve_sender_end(serve_server *server, serve_sender *sender);
/* Notes that the client has sent a whole request, or may send the next one (`sends`). */
void serve_sender_set(serve_server *server, serve_sender *sender, bool sends);
/* Ends the connections whose clients have taken longer than --send-time. Needs the lock. */
void serve_end_slow_senders(serve_server *server);

/* Threads that read bodies (readers.c). `run` is called in one of them. */
typedef struct serve_work {
    void (*run)(struct serve_work *work);
    struct serve_work *next;
} serve_work;
/* Returns NULL if there can be no thread. */
serve_readers *serve_readers_start(void);
void serve_readers_add(serve_readers *readers, serve_work *work);
/* Waits until all work is done. NULL is allowed in *readers. */
void serve_readers_stop(serve_readers **readers);

/* Tells systemd a state, such as "READY=1", if it wants to know (notify.c). */
void serve_notify(const char *state);
/* The time of the monotonic clock in seconds. */
double serve_now(void);
/* Puts the choices of a request into the queue. Returns false if too many requests wait already.
 * Needs the lock. */
bool serve_enqueue(serve_server *server, serve_request *request);
/* Returns the choice that serve_dequeue would take, and leaves it in the queue, which is not empty.
 * Needs the lock. */
serve_choice *serve_peek(const serve_server *server);
/* Takes the choice that is next from the queue, which is not empty: that of the request with the
 * fewest running texts, and of several such requests, that of the first one. Needs the lock. */
serve_choice *serve_dequeue(serve_server *server);
/* Puts a choice that has run before all others of the queue. Needs the lock. */
void serve_requeue(serve_server *server, serve_choice *choice);
/* Takes all choices of a request from the queue. Needs the lock. */
void serve_unqueue(serve_server *server, serve_request *request);

/* Schedules (schedule.c): the texts that run, which outlive the model that computes them. */
typedef struct serve_schedule serve_schedule;
serve_schedule *serve_schedule_create(serve_server *server);
void serve_schedule_destroy(serve_schedule **schedule);
/* Generates texts until the server is told to stop, which sets *ends, or processes have joined,
 * with which job.comm then is. All ranks call this. */
tsr_status serve_schedule_run(serve_schedule *schedule, bool *ends);
/* Makes all texts that run wait, so that they are computed from their tokens. */
void serve_schedule_requeue(serve_schedule *schedule);
/* Ends all requests with status 503. */
void serve_schedule_fail(serve_schedule *schedule, const char *why);

/* Ranks (ranks.c) --------------------------------------------------------------------------------
 */

/* Opens the model on all ranks of job.comm, as often as ranks are lost meanwhile. */
tsr_status serve_open(serve_server *server);
/* Closes the model. */
void serve_close(serve_server *server);
/* Returns whether a rank has been lost, after an error. */
bool serve_has_lost(const serve_server *server, tsr_status status);
/* Goes on with the ranks that are left. */
tsr_status serve_shrink(serve_server *server);
/* Lets processes join that wait for it. Returns TSR_OK if there are some, which have then joined
 * job.comm. All ranks call this. */
tsr_status serve_grow(serve_server *server);

/* Prints on rank 0 what has happened to the ranks, and keeps it for the page. */
void serve_record(serve_server *server, const char *format, ...) CLI_PRINTF(2, 3);

/* Makes SIGINT and SIGTERM stop the server: rank 0 ends what runs, and tells the others. */
void serve_catch_signals(bool first);

#endif
