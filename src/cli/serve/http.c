/* The HTTP side of the server, by libmicrohttpd. One thread serves all connections. A connection
 * is suspended while another thread reads the body of its request, which wakes it (readers.c), and
 * while it waits for text, until the schedule wakes it. */
#include <errno.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "cli/lib/memory.h"
#include "cli/serve/serve.h"

/* The time in seconds in which a client must send the next bytes of its request, or read those of
 * the answer. */
#define IDLE_SECONDS 60
/* How long the server waits, when it ends, for answers that are being sent, in seconds. */
#define LAST_SECONDS 5
/* The most bytes that are read of a certificate, and of its key. */
#define TLS_BYTES (1 << 20)
/* The most bytes of a request's headers. */
#define HEADER_BYTES 32768

/* So many bodies may be read beside those of the requests that run or wait. */
#define MORE_BODIES 4
/* The bodies of all requests together, also those that are being received, may have the size of so
 * many of the largest ones. */
#define LARGEST_BODIES 16

/* Files that the process may need beside one for each connection. */
#define OTHER_FILES 1024

typedef struct exchange exchange;

/* What a path does: queues an answer, or sets what the body asks for, in a thread for it. */
typedef enum MHD_Result (*handler)(serve_server *server, struct MHD_Connection *to,
                                   const char *path);
typedef void (*body_reader)(serve_server *server, exchange *c);

typedef struct route {
    const char *method;
    const char *path; /* one that ends with / is the beginning of paths, except / itself */
    handler handle;   /* NULL: it reads a body */
    body_reader read;
    bool open; /* needs no key */
} route;

struct exchange {
    serve_work work; /* reads the body */
    serve_server *server;
    struct MHD_Connection *connection;
    int socket; /* −1: unknown */
    const route *route;
    cli_text body;
    double arrived;         /* when the body was complete, of serve_now */
    bool reads;             /* a thread has got the body, and sets one of: */
    serve_problem problem;  /* why the request was refused; status 0: it was not */
    serve_request *request; /* NULL: none */
    cli_text answer;        /* otherwise */
};

/* Answers -------------------------------------------------------------------------------------- */

static enum MHD_Result answer(struct MHD_Connection *to, unsigned status, const char *type,
                              const cli_text *text)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(text->size, text->data, MHD_RESPMEM_MUST_COPY);
    if (response == NULL)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (status == 401)
        MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    if (status == 429 || status == 503)
        MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    const enum MHD_Result result = MHD_queue_response(to, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result answer_json(struct MHD_Connection *to, unsigned status, json_t *value)
{
    cli_text text = {0};
    cli_text_add_json(&text, value);
    cli_text_add(&text, "\n", 1);
    const enum MHD_Result result = answer(to, status, "application/json", &text);
    cli_text_free(&text);
    return result;
}

static enum MHD_Result answer_problem(serve_server *server, struct MHD_Connection *to,
                                      const serve_problem *problem)
{
    pthread_mutex_lock(&server->lock);
    server->metrics.refused++;
    pthread_mutex_unlock(&server->lock);
    return answer_json(to, problem->status, serve_error_json(problem));
}

/* Texts ---------------------------------------------------------------------------------------- */

static void suspend(serve_request *r, struct MHD_Connection *connection)
{
    r->suspended = connection;
    MHD_suspend_connection(connection);
}

void serve_http_wake(serve_server *server, serve_request *r)
{
    if (r->suspended == NULL)
        return;
    if (server->woken_count == server->woken_capacity) {
        server->woken_capacity = 2 * server->woken_capacity + 16;
        server->woken = cli_resize(server->woken, (size_t)server->woken_capacity,
                                   sizeof(struct MHD_Connection *));
    }
    server->woken[server->woken_count++] = r->suspended;
    r->suspended = NULL;
}

/* A connection that is suspended is not closed before it has been resumed. */
void serve_http_unlock(serve_server *server)
{
    struct MHD_Connection *first = NULL;
    if (server->woken_count > 0)
        first = server->woken[--server->woken_count];
    pthread_mutex_unlock(&server->lock);
    if (first != NULL)
        MHD_resume_connection(first);
}

/* Takes the list of connections to wake, for wake_others. Needs the lock. Returns their number. */
static int take_woken(serve_server *server)
{
    const int count = server->woken_count, capacity = server->woken_capacity;
    struct MHD_Connection **taken = server->woken;
    if (count == 0)
        return 0;
    server->woken = server->waking;
    server->woken_capacity = server->waking_capacity;
    server->woken_count = 0;
    server->waking = taken;
    server->waking_capacity = capacity;
    return count;
}

/* Wakes the connections that the thread of all connections has taken. */
static void wake_others(const serve_server *server, int count)
{
    for (int i = 0; i < count; i++)
        MHD_resume_connection(server->waking[i]);
}

static bool is_closed(int fd)
{
    if (fd < 0)
        return false;
#ifdef POLLRDHUP
    /* Bytes may come before the end, such as TLS's last message. */
    struct pollfd one = {.fd = fd, .events = POLLRDHUP};
    return poll(&one, 1, 0) > 0;
#else
    char byte;
    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
#endif
}

bool serve_http_is_closed(const serve_request *r)
{
    return is_closed(r->socket);
}

typedef struct event_reader {
    serve_server *server;
    serve_request *request; /* used by the connection, which outlives the reader */
    struct MHD_Connection *connection;
} event_reader;

/* Moves the events that have not been read to the start when they are the smaller part, so that all
 * moves together cost no more than the events. The texts of all requests wait meanwhile. */
static void forget_read_events(serve_request *r)
{
    const size_t left = r->events.size - r->events_read;
    if (left > r->events_read)
        return;
    memmove(r->events.data, r->events.data + r->events_read, left);
    r->events.size = left;
    r->events_read = 0;
}

static ssize_t read_events(void *user, uint64_t position, char *to, size_t most)
{
    event_reader *reader = user;
    serve_request *r = reader->request;
    ssize_t size = 0;
    (void)position;
    pthread_mutex_lock(&reader->server->lock);
    if (r->events.size > r->events_read) {
        const size_t left = r->events.size - r->events_read;
        size = (ssize_t)(left < most ? left : most);
        memcpy(to, r->events.data + r->events_read, (size_t)size);
        r->events_read += (size_t)size;
        forget_read_events(r);
    } else if (r->ended) {
        size = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        suspend(r, reader->connection);
    }
    const int others = take_woken(reader->server);
    pthread_mutex_unlock(&reader->server->lock);
    wake_others(reader->server, others);
    return size;
}

static enum MHD_Result answer_events(serve_server *server, struct MHD_Connection *to,
                                     serve_request *r)
{
    event_reader *reader = cli_alloc(1, sizeof *reader);
    *reader = (event_reader){server, r, to};
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 65536, read_events, reader, free);
    if (response == NULL) {
        free(reader);
        return MHD_NO;
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/event-stream");
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    const enum MHD_Result result = MHD_queue_response(to, 200, response);
    MHD_destroy_response(response);
    return result;
}

/* Answers a request that has ended, or waits for its end. */
static enum MHD_Result answer_request(serve_server *server, struct MHD_Connection *to,
                                      serve_request *r)
{
    if (r->stream)
        return answer_events(server, to, r);
    pthread_mutex_lock(&server->lock);
    const bool ended = r->ended;
    if (!ended)
        suspend(r, to);
    const int others = take_woken(server);
    pthread_mutex_unlock(&server->lock);
    wake_others(server, others);
    if (!ended)
        return MHD_YES;
    return r->failed.status != 0 ? answer_problem(server, to, &r->failed)
                                 : answer_json(to, 200, serve_reply_json(server, r));
}

static int socket_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info != NULL ? info->connect_fd : -1;
}

static serve_sender *sender_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info != NULL ? info->socket_context : NULL;
}

/* Called by libmicrohttpd when a connection begins, and before its socket is closed. */
static void connect_or_close(void *user, struct MHD_Connection *connection, void **context,
                             enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        *context = serve_sender_begin(user, socket_of(connection));
    } else {
        serve_sender_end(user, *context);
        *context = NULL;
    }
}

static void generate(serve_server *server, exchange *c, bool chat)
{
    serve_request *r = serve_request_read(server, chat, c->body.data, c->body.size, &c->problem);
    if (r == NULL)
        return;
    pthread_mutex_lock(&server->lock);
    r->socket = c->socket;
    r->arrived = c->arrived;
    c->request = r;
    if (server->stopping)
        serve_refuse(&c->problem, 503, "", "the server shuts down");
    else if (server->unavailable[0] != '\0')
        serve_refuse(&c->problem, 503, "", "%s", server->unavailable);
    else if (!serve_enqueue(server, r))
        serve_refuse(&c->problem, 429, "", "%d request%s already waiting; try again later",
                     server->waiting_requests, server->waiting_requests == 1 ? " is" : "s are");
    pthread_mutex_unlock(&server->lock);
}

static void chat_completions(serve_server *server, exchange *c)
{
    generate(server, c, true);
}

static void completions(serve_server *server, exchange *c)
{
    generate(server, c, false);
}

/* Other paths ---------------------------------------------------------------------------------- */

#define MODELS "/v1/models"

/* Answers with the list of models, or with the one that the path names. */
static enum MHD_Result models(serve_server *server, struct MHD_Connection *to, const char *path)
{
    json_t *list = serve_models_json(server), *model;
    size_t i;
    if (strcmp(path, MODELS) == 0)
        return answer_json(to, 200, list);
    const char *id = path + sizeof MODELS;
    json_array_foreach(json_object_get(list, "data"), i, model)
    {
        if (strcmp(json_string_value(json_object_get(model, "id")), id) != 0)
            continue;
        json_incref(model);
        json_decref(list);
        return answer_json(to, 200, model);
    }
    json_decref(list);
    serve_problem problem = {0};
    serve_refuse(&problem, 404, "model", "there is no model '%.100s'", id);
    return answer_problem(server, to, &problem);
}

static bool is_ready(serve_server *server)
{
    pthread_mutex_lock(&server->lock);
    const bool ready = server->ready;
    pthread_mutex_unlock(&server->lock);
    return ready;
}

/* A server with too few ranks still serves, and so does one whose ranks open the model again. */
static enum MHD_Result health(serve_server *server, struct MHD_Connection *to, const char *path)
{
    (void)path;
    pthread_mutex_lock(&server->lock);
    const bool ready = server->ready && server->unavailable[0] == '\0';
    const char *status = !server->ready                         ? "loading"
                         : server->unavailable[0] != '\0'       ? "unavailable"
                         : server->repairs                      ? "repairing"
                         : server->ranks < server->wanted_ranks ? "degraded"
                                                                : "ok";
    json_t *value =
        json_pack("{sssisisIsI}", "status", status, "ranks", server->ranks, "wanted_ranks",
                  server->wanted_ranks, "lost_ranks", (json_int_t)server->metrics.losses,
                  "joined_ranks", (json_int_t)server->metrics.joins);
    if (!server->ready || server->repairs)
        json_object_set_new(value, "progress", json_real(server->progress));
    if (server->unavailable[0] != '\0')
        json_object_set_new(value, "message", json_string(server->unavailable));
    pthread_mutex_unlock(&server->lock);
    return answer_json(to, ready ? 200 : 503, value);
}

static enum MHD_Result ranks(serve_server *server, struct MHD_Connection *to, const char *path)
{
    (void)path;
    pthread_mutex_lock(&server->lock);
    json_t *value = serve_ranks_json(server);
    pthread_mutex_unlock(&server->lock);
    return answer_json(to, 200, value);
}

static enum MHD_Result page(serve_server *server, struct MHD_Connection *to, const char *path)
{
    (void)path;
    struct MHD_Response *response = MHD_create_response_from_buffer(
        server->page.size, server->page.data, MHD_RESPMEM_PERSISTENT);
    if (response == NULL)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/html; charset=utf-8");
    MHD_add_response_header(response, "Content-Security-Policy", server->policy);
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    const enum MHD_Result result = MHD_queue_response(to, 200, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result metrics(serve_server *server, struct MHD_Connection *to, const char *path)
{
    (void)path;
    cli_text text = {0};
    pthread_mutex_lock(&server->lock);
    serve_metrics_write(server, &text);
    pthread_mutex_unlock(&server->lock);
    const enum MHD_Result result = answer(to, 200, "text/plain; version=0.0.4", &text);
    cli_text_free(&text);
    return result;
}

static void keep_answer(exchange *c, json_t *value)
{
    if (value == NULL)
        return;
    cli_text_add_json(&c->answer, value);
    cli_text_add(&c->answer, "\n", 1);
}

static void tokenize(serve_server *server, exchange *c)
{
    keep_answer(c, serve_tokenize(server, c->body.data, c->body.size, &c->problem));
}

static void detokenize(serve_server *server, exchange *c)
{
    keep_answer(c, serve_detokenize(server, c->body.data, c->body.size, &c->problem));
}

static const route routes[] = {
    {"POST", "/v1/chat/completions", NULL, chat_completions, false},
    {"POST", "/v1/completions", NULL, completions, false},
    {"GET", MODELS, models, NULL, false},
    {"GET", MODELS "/", models, NULL, false},
    {"POST", "/tokenize", NULL, tokenize, false},
    {"POST", "/detokenize", NULL, detokenize, false},
    {"GET", "/metrics", metrics, NULL, false},
    {"GET", "/ranks", ranks, NULL, false},
    {"GET", "/health", health, NULL, true},
    {"GET", "/", page, NULL, true},
};

/* Requests ------------------------------------------------------------------------------------- */

/* Compares in a time that depends only on the lengths. */
static bool same_key(const char *key, const char *given)
{
    const size_t size = strlen(key), given_size = strlen(given);
    unsigned different = size != given_size;
    for (size_t i = 0; i < given_size; i++)
        different |= (unsigned)(unsigned char)given[i] ^ (unsigned)(unsigned char)key[i % size];
    return different == 0;
}

static bool has_key(const serve_server *server, struct MHD_Connection *from)
{
    static const char scheme[] = "Bearer ";
    const char *given =
        MHD_lookup_connection_value(from, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    if (server->key[0] == '\0')
        return true;
    return given != NULL && strncasecmp(given, scheme, sizeof scheme - 1) == 0 &&
           same_key(server->key, given + sizeof scheme - 1);
}

static bool may_ask(const serve_server *server, struct MHD_Connection *from, serve_problem *problem)
{
    if (server->key[0] != '\0' || serve_chosen.no_api_key)
        return true;
    return serve_check_origin(
        MHD_lookup_connection_value(from, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST),
        MHD_lookup_connection_value(from, MHD_HEADER_KIND, MHD_HTTP_HEADER_ORIGIN), problem);
}

static bool leads_to(const route *to, const char *path)
{
    const size_t length = strlen(to->path);
    const bool begins = length > 1 && to->path[length - 1] == '/';
    return begins ? strncmp(to->path, path, length) == 0 && path[length] != '\0'
                  : strcmp(to->path, path) == 0;
}

/* Finds the route, and refuses what no route allows. HEAD is answered as GET, without a body. */
static void find_route(const serve_server *server, struct MHD_Connection *from, const char *path,
                       const char *method, exchange *c, serve_problem *problem)
{
    const char *as = strcmp(method, "HEAD") == 0 ? "GET" : method;
    bool known = false;
    if (!may_ask(server, from, problem))
        return;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (!leads_to(&routes[i], path))
            continue;
        known = true;
        if (strcmp(routes[i].method, as) == 0)
            c->route = &routes[i];
    }
    if (!known)
        serve_refuse(problem, 404, "", "there is no path '%.100s'", path);
    else if (c->route == NULL)
        serve_refuse(problem, 405, "", "%.100s does not support %.20s", path, method);
    else if (!c->route->open && !has_key(server, from))
        serve_refuse(problem, 401, "", "the API key is missing or wrong");
}

/* Frees the body of a request, which then does not count any more. */
static void drop_body(exchange *c)
{
    pthread_mutex_lock(&c->server->lock);
    c->server->body_bytes -= c->body.size;
    pthread_mutex_unlock(&c->server->lock);
    cli_text_free(&c->body);
}

/* Counts further bytes of bodies. Returns false, and counts nothing, if they would be too many. */
static bool count_body(serve_server *server, size_t size, size_t most)
{
    pthread_mutex_lock(&server->lock);
    const bool fits = size <= most - server->body_bytes;
    server->body_bytes += fits ? size : 0;
    pthread_mutex_unlock(&server->lock);
    return fits;
}

/* Keeps bodies only for routes that read them, all of which need the key: others than the server's
 * clients must not fill its memory. Of a request that is refused, the rest is thrown away. */
static void add_body(exchange *c, const char *data, size_t size)
{
    if (c->route->read == NULL || c->problem.status != 0)
        return;
    const size_t limit = (size_t)serve_chosen.body_limit << 20;
    if (size > limit - c->body.size)
        serve_refuse(&c->problem, 413, "", "the body is larger than %" PRId64 " MiB",
                     serve_chosen.body_limit);
    else if (!count_body(c->server, size, LARGEST_BODIES * limit))
        serve_refuse(&c->problem, 429, "",
                     "the bodies of all requests would exceed %" PRId64 " MiB; try again later",
                     LARGEST_BODIES * serve_chosen.body_limit);
    else
        cli_text_add(&c->body, data, size);
    if (c->problem.status != 0)
        drop_body(c);
}

static enum MHD_Result begin(serve_server *server, struct MHD_Connection *from, const char *path,
                             const char *method, exchange *c)
{
    serve_problem problem = {0};
    find_route(server, from, path, method, c, &problem);
    if (problem.status == 0 && !c->route->open && !is_ready(server))
        serve_refuse(&problem, 503, "", "the model is being loaded");
    return problem.status != 0 ? answer_problem(server, from, &problem) : MHD_YES;
}

static void read_body(serve_work *work)
{
    exchange *c = (exchange *)work;
    serve_server *server = c->server;
    pthread_mutex_lock(&server->lock);
    const bool stopping = server->stopping;
    pthread_mutex_unlock(&server->lock);
    if (stopping)
        serve_refuse(&c->problem, 503, "", "the server shuts down");
    else if (is_closed(c->socket))
        serve_refuse(&c->problem, 400, "", "the client has gone");
    else
        c->route->read(server, c);
    drop_body(c); /* the text may be generated long after this */
    pthread_mutex_lock(&server->lock);
    server->bodies--;
    pthread_mutex_unlock(&server->lock);
    MHD_resume_connection(c->connection);
}

/* Gives the body to a thread, unless the server closes all connections, or too many bodies wait,
 * which need memory. */
static bool begin_reading(serve_server *server, struct MHD_Connection *connection, exchange *c)
{
    c->work.run = read_body;
    c->connection = connection;
    c->socket = socket_of(connection);
    c->arrived = serve_now();
    pthread_mutex_lock(&server->lock);
    const int64_t most = serve_chosen.queue + serve_chosen.parallel + MORE_BODIES;
    c->reads = !server->closing && server->bodies < most;
    if (c->reads) {
        server->bodies++;
        MHD_suspend_connection(connection);
        serve_readers_add(server->readers, &c->work);
    } else if (!server->closing) {
        serve_refuse(&c->problem, 429, "",
                     "the bodies of %" PRId64 " requests are being read already; try again later",
                     server->bodies);
    } else {
        serve_refuse(&c->problem, 503, "", "the server shuts down");
    }
    pthread_mutex_unlock(&server->lock);
    if (!c->reads)
        drop_body(c);
    return c->reads;
}

/* Answers when the body has been read. */
static enum MHD_Result read_and_answer(serve_server *server, struct MHD_Connection *to, exchange *c)
{
    if (!c->reads && c->problem.status == 0 && begin_reading(server, to, c))
        return MHD_YES;
    if (c->problem.status != 0)
        return answer_problem(server, to, &c->problem);
    return c->request != NULL ? answer_request(server, to, c->request)
                              : answer(to, 200, "application/json", &c->answer);
}

/* Called by libmicrohttpd: first with the headers, then with each piece of the body, then with none
 * left, and again when a connection that was suspended goes on. */
static enum MHD_Result handle(void *user, struct MHD_Connection *from, const char *path,
                              const char *method, const char *version, const char *data,
                              size_t *size, void **state)
{
    serve_server *server = user;
    exchange *c = *state;
    (void)version;
    if (c == NULL) {
        *state = c = cli_alloc(1, sizeof *c);
        c->server = server;
        cli_text_add(&c->body, "", 0);
        pthread_mutex_lock(&server->lock);
        server->exchanges++;
        pthread_mutex_unlock(&server->lock);
        return begin(server, from, path, method, c);
    }
    if (*size > 0) {
        add_body(c, data, *size);
        *size = 0;
        return MHD_YES;
    }
    serve_sender_set(server, sender_of(from), false);
    return c->route->handle != NULL ? c->route->handle(server, from, path)
                                    : read_and_answer(server, from, c);
}

/* Called when an answer has been sent, or the client has gone. */
static void complete(void *user, struct MHD_Connection *from, void **state,
                     enum MHD_RequestTerminationCode code)
{
    serve_server *server = user;
    exchange *c = *state;
    (void)code;
    serve_sender_set(server, sender_of(from), true);
    if (c == NULL)
        return;
    pthread_mutex_lock(&server->lock);
    if (c->request != NULL) {
        c->request->cancelled = c->request->cancelled || !c->request->ended;
        c->request->suspended = NULL;
        c->request->socket = -1;
        serve_request_leave(c->request);
    }
    server->body_bytes -= c->body.size;
    server->exchanges--;
    pthread_cond_signal(&server->changed);
    const int others = take_woken(server);
    pthread_mutex_unlock(&server->lock);
    wake_others(server, others);
    cli_text_free(&c->body);
    cli_text_free(&c->answer);
    free(c);
    *state = NULL;
}

/* Starting ------------------------------------------------------------------------------------- */

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, address, sizeof v4);
        return ntohl(v4.sin_addr.s_addr) >> 24 == 127;
    }
    struct sockaddr_in6 v6;
    memcpy(&v6, address, sizeof v6);
    return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
}

static int read_key(serve_server *server)
{
    if (serve_chosen.api_key_file == NULL)
        return CLI_DONE;
    FILE *file = fopen(serve_chosen.api_key_file, "r");
    const bool read = file != NULL && fgets(server->key, sizeof server->key, file) != NULL;
    const int error = errno;
    if (file != NULL)
        fclose(file);
    if (!read)
        return cli_failed("serve: cannot read the API key from %s: %s", serve_chosen.api_key_file,
                          file == NULL ? strerror(error) : "the file is empty");
    server->key[strcspn(server->key, "\r\n")] = '\0';
    if (server->key[0] == '\0' || strlen(server->key) + 1 == sizeof server->key)
        return cli_failed("serve: the API key in %s has %zu bytes; 1 to %zu are possible",
                          serve_chosen.api_key_file, strlen(server->key), sizeof server->key - 2);
    return CLI_DONE;
}

/* Reads a file of keys or certificates. Returns NULL if that fails. */
static char *read_text(const char *path)
{
    cli_text text = {0};
    char bytes[4096];
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return NULL;
    cli_text_add(&text, "", 0);
    for (size_t size; text.size < TLS_BYTES && (size = fread(bytes, 1, sizeof bytes, file)) > 0;)
        cli_text_add(&text, bytes, size);
    const bool failed = ferror(file) != 0;
    fclose(file);
    if (failed)
        cli_text_free(&text);
    return text.data;
}

static int read_tls(char **certificate, char **key)
{
    if (serve_chosen.tls_cert == NULL)
        return CLI_DONE;
    if (MHD_is_feature_supported(MHD_FEATURE_TLS) == MHD_NO)
        return cli_failed("serve: this libmicrohttpd was built without TLS");
    *certificate = read_text(serve_chosen.tls_cert);
    if (*certificate == NULL)
        return cli_failed("serve: cannot read the certificate %s: %s", serve_chosen.tls_cert,
                          strerror(errno));
    *key = read_text(serve_chosen.tls_key);
    if (*key == NULL)
        return cli_failed("serve: cannot read the key %s: %s", serve_chosen.tls_key,
                          strerror(errno));
    return CLI_DONE;
}

static int listen_on(serve_server *server, const struct addrinfo *address, char *certificate,
                     char *key)
{
    const struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, certificate},
                                         {MHD_OPTION_HTTPS_MEM_KEY, 0, key},
                                         {MHD_OPTION_END, 0, NULL}};
    if (!is_loopback(address->ai_addr) && server->key[0] == '\0' && !serve_chosen.no_api_key)
        return cli_failed("serve: others can reach %s: --api-key-file names the key that they "
                          "need, and --no-api-key lets everybody in",
                          serve_chosen.host);
    server->daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_AUTO | MHD_ALLOW_SUSPEND_RESUME |
            (certificate != NULL ? MHD_USE_TLS : MHD_NO_FLAG) |
            (address->ai_family == AF_INET6 ? MHD_USE_IPv6 : MHD_NO_FLAG),
        (uint16_t)serve_chosen.port, NULL, NULL, handle, server, MHD_OPTION_SOCK_ADDR,
        address->ai_addr, MHD_OPTION_NOTIFY_COMPLETED, complete, server,
        MHD_OPTION_NOTIFY_CONNECTION, connect_or_close, server, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)serve_chosen.connections, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)HEADER_BYTES, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS,
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_ARRAY, certificate != NULL ? tls : tls + 2,
        MHD_OPTION_END);
    if (server->daemon == NULL)
        return cli_failed("serve: cannot listen on %s, port %" PRId64 "%s: %s", serve_chosen.host,
                          serve_chosen.port,
                          certificate != NULL ? ", with this certificate and key" : "",
                          errno != 0 ? strerror(errno) : "libmicrohttpd refuses");
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_BIND_PORT);
    server->port = info != NULL && info->port != 0 ? info->port : (int)serve_chosen.port;
    return CLI_DONE;
}

/* Allows this process as many files as the connections need, beside those of the device and of
 * other ranks. If the system refuses, fewer clients can connect at the same time. */
static void raise_file_limit(void)
{
    struct rlimit files;
    const rlim_t wanted = (rlim_t)serve_chosen.connections + OTHER_FILES;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= wanted)
        return;
    files.rlim_cur = files.rlim_max < wanted ? files.rlim_max : wanted;
    (void)setrlimit(RLIMIT_NOFILE, &files);
}

int serve_http_start(serve_server *server)
{
    raise_file_limit();
    serve_page(&server->page, server->policy, sizeof server->policy);
    const struct addrinfo wanted = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found = NULL;
    char port[16];
    int code = read_key(server);
    if (code != CLI_DONE)
        return code;
    snprintf(port, sizeof port, "%" PRId64, serve_chosen.port);
    const int error = getaddrinfo(serve_chosen.host, port, &wanted, &found);
    if (error != 0)
        return cli_failed("serve: --host %s: %s", serve_chosen.host, gai_strerror(error));
    char *certificate = NULL, *key = NULL;
    code = read_tls(&certificate, &key);
    if (code == CLI_DONE && (server->readers = serve_readers_start()) == NULL)
        code = cli_failed("serve: cannot start a thread");
    errno = 0;
    if (code == CLI_DONE)
        code = listen_on(server, found, certificate, key);
    freeaddrinfo(found);
    free(certificate);
    free(key);
    return code;
}

/* Stops the threads that read bodies before the connections that wait for them are closed, none of
 * which may be suspended any more. */
static void stop_daemon(serve_server *server)
{
    pthread_mutex_lock(&server->lock);
    server->closing = true;
    while (server->woken_count > 0) {
        serve_http_unlock(server);
        pthread_mutex_lock(&server->lock);
    }
    pthread_mutex_unlock(&server->lock);
    serve_readers_stop(&server->readers);
    MHD_stop_daemon(server->daemon);
    server->daemon = NULL;
}

void serve_http_stop(serve_server *server)
{
    if (server->daemon == NULL) {
        serve_readers_stop(&server->readers);
        return;
    }
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += LAST_SECONDS;
    const MHD_socket listener = MHD_quiesce_daemon(server->daemon);
    pthread_mutex_lock(&server->lock);
    while (server->exchanges > 0 &&
           pthread_cond_timedwait(&server->changed, &server->lock, &until) == 0)
        ;
    pthread_mutex_unlock(&server->lock);
    stop_daemon(server);
    if (listener != MHD_INVALID_SOCKET)
        close(listener);
}
