/* tessera chat: converts messages to tokens, and prints the model's reply while it is generated. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/chat/chat.h"
#include "cli/commands.h"
#include "cli/lib/memory.h"
#include "cli/lib/numbers.h"
#include "cli/lib/terminal.h"

#define USUAL_CONTEXT 4096

typedef struct chat {
    inference_job job;
    tsr_tokenizer *tokenizer;
    tsr_generator *generator;
    tsr_chat_format format;
    bool needs_format; /* no known format was found in the model's files */
    int64_t context;
    int32_t end[INFERENCE_MAX_END_TOKENS];
    int end_count;
    tsr_grammar *grammar;     /* of replies; NULL: any text */
    tsr_grammar_state *start; /* of the grammar */
    chat_conversation conversation;
    int sequence;    /* -1: the conversation has no message yet */
    uint64_t number; /* of the generator's sequence, so that each has draws of its own */
    tsr_chat_after after;
} chat;

/* Prints a note to the user, on standard error. Only rank 0 prints. */
#define MESSAGE 4096 /* the size of an error message */
#define NOTE(chat, ...) ((chat)->job.first ? cli_say(__VA_ARGS__) : (void)0)

/* Opening -------------------------------------------------------------------------------------- */

/* Compiles the grammar of replies, which may begin with reasoning. */
static tsr_status open_grammar(chat *c)
{
    char before[INFERENCE_REASONING_GRAMMAR] = "";
    if (!chat_chosen.plain)
        inference_answer_grammar(c->tokenizer, c->format, TSR_CHAT_REASONING_DEFAULT, before,
                                 sizeof before);
    tsr_status status = inference_read_grammar(c->tokenizer, &chat_chosen.grammar, before,
                                               &c->grammar, c->job.problem, sizeof c->job.problem);
    if (status == TSR_OK && c->grammar != NULL)
        status = tsr_grammar_state_create(c->grammar, NULL, &c->start);
    return status;
}

static tsr_status open_chat(chat *c)
{
    const inference_options *o = &inference_chosen;
    c->sequence = -1;
    c->format = inference_chosen.format;
    tsr_status status = inference_open_tokenizer(&c->tokenizer);
    if (status == TSR_OK && c->format == TSR_CHAT_MODEL && !chat_chosen.plain) {
        status = tsr_chat_format_of(c->tokenizer, &c->format);
        c->needs_format = status != TSR_OK;
    }
    if (status == TSR_OK)
        status = inference_open(&c->job, USUAL_CONTEXT, 0, 1);
    if (status != TSR_OK)
        return status;
    c->context = c->job.context;
    status = open_grammar(c);
    if (status != TSR_OK)
        return status;
    if (!chat_chosen.ignore_end)
        c->end_count = inference_end_tokens(c->tokenizer, INFERENCE_MAX_END_TOKENS, c->end);
    return tsr_generator_create(
        tsr_generator_params(.model = c->job.model, .sequences = 1, .context = c->context,
                             .cache_dtype = o->cache_dtype, .prefill = o->prefill,
                             .draft = o->draft.of.from, .draft_tokens = o->draft.of.tokens,
                             .draft_model = c->job.draft_model,
                             .rejection_sampling = o->draft.rejection),
        &c->generator);
}

static void close_chat(chat *c)
{
    inference_catch_signals(NULL);
    tsr_generator_destroy(&c->generator);
    tsr_grammar_state_destroy(&c->start);
    tsr_grammar_destroy(&c->grammar);
    tsr_tokenizer_close(&c->tokenizer);
    inference_close(&c->job);
    chat_conversation_clear(&c->conversation);
    chat_edit_end();
}

/* Replies -------------------------------------------------------------------------------------- */

/* The reply that is being generated. Spaces at its start are not printed, nor is the reasoning. */
typedef struct reply {
    tsr_text_stream *stream;
    bool begun;
    tsr_finish finish;
} reply;

/* Keeps and prints the text that the stream has given out last. */
static void print(chat *c, reply *r, const char *text, size_t size)
{
    if (tsr_text_stream_channel(r->stream) != TSR_TEXT_ANSWER)
        return;
    if (chat_chosen.plain) /* the text goes on where the message ends */
        chat_conversation_add_reply(&c->conversation, text, size);
    while (!r->begun && size > 0 && (*text == ' ' || *text == '\n')) {
        text++;
        size--;
    }
    r->begun = r->begun || size > 0;
    if (!chat_chosen.plain)
        chat_conversation_add_reply(&c->conversation, text, size);
    if (!c->job.first)
        return;
    fwrite(text, 1, size, stdout);
    (void)cli_flush();
}

static tsr_status add_token(chat *c, reply *r, int32_t token)
{
    const char *text = NULL;
    size_t size = 0;
    bool stopped = false;
    chat_conversation_add_ids(&c->conversation, &token, 1);
    if (token >= tsr_tokenizer_size(c->tokenizer)) /* padding: no text */
        return TSR_OK;
    const tsr_status status = tsr_text_stream_add(r->stream, token, &text, &size, &stopped);
    if (status == TSR_OK)
        print(c, r, text, size);
    return status;
}

/* Generates and prints the reply. Continues until a step finds no unfinished sequence, because that
 * step also clears an interrupt that came after the last token. */
static tsr_status generate(chat *c, reply *r)
{
    for (int count = 1; count > 0;) {
        tsr_status status = tsr_generator_step(c->generator, &count);
        const tsr_generated *token = tsr_generator_token(c->generator, 0);
        if (status == TSR_OK && token != NULL && token->token >= 0)
            status = add_token(c, r, token->token);
        if (status != TSR_OK)
            return status;
        if (token != NULL)
            r->finish = token->finish;
        if (!cli_flush()) /* nobody can read the reply */
            return TSR_OK;
    }
    const char *text = NULL;
    size_t size = 0;
    const tsr_status status = tsr_text_stream_end(r->stream, &text, &size);
    if (status != TSR_OK)
        return status;
    print(c, r, text, size);
    if (c->job.first)
        putchar('\n');
    if (!r->begun && tsr_text_stream_channel(r->stream) != TSR_TEXT_ANSWER)
        NOTE(c, "chat: the reply ended before its answer began; --show-reasoning prints all of it");
    (void)cli_flush();
    return TSR_OK;
}

/* Generates and prints the reply to the last message, whose ids have been added to the sequence. */
static tsr_status reply_to(chat *c, tsr_finish *finish)
{
    const chat_conversation *all = &c->conversation;
    reply r = {0};
    const char *text = NULL;
    size_t size = 0;
    tsr_status status = tsr_text_stream_create(
        tsr_text_stream_params(.tokenizer = c->tokenizer,
                               .channels = !chat_chosen.show_reasoning && !chat_chosen.plain),
        &r.stream);
    for (int64_t i = all->message; i < all->reply && status == TSR_OK; i++)
        status = tsr_text_stream_add_prompt(r.stream, all->ids[i], &text, &size);
    if (status == TSR_OK) {
        inference_catch_signals(c->generator);
        status = generate(c, &r);
        inference_catch_signals(NULL);
    }
    tsr_text_stream_destroy(&r.stream);
    *finish = r.finish;
    c->after = r.finish == TSR_FINISH_TOKEN ? TSR_CHAT_AFTER_END : TSR_CHAT_AFTER_CUT;
    if (status == TSR_OK && r.finish == TSR_FINISH_STUCK)
        NOTE(c, "chat: no token of the model can continue the reply by the grammar");
    if (status == TSR_OK && r.finish == TSR_FINISH_CONTEXT)
        NOTE(c, "chat: the context of %" PRId64 " tokens is full; /clear begins a new conversation",
             c->context);
    return status;
}

/* Messages ------------------------------------------------------------------------------------- */

/* Encodes a message without a format. Each text begins as the model's files say. */
static tsr_status encode_plain(const chat *c, const chat_line *line, int32_t **ids, uint64_t *count)
{
    const tsr_encode_params params = {
        .struct_size = sizeof params,
        .add = c->after == TSR_CHAT_AFTER_CUT ? TSR_ENCODE_ADD_NONE : TSR_ENCODE_ADD_DEFAULT,
        .control = TSR_ENCODE_CONTROL_TEXT};
    return tsr_tokenizer_encode(c->tokenizer, line->text, line->size, &params, ids, count);
}

static tsr_status encode(const chat *c, const chat_line *line, int32_t **ids, uint64_t *count)
{
    if (chat_chosen.plain)
        return encode_plain(c, line, ids, count);
    const bool system = chat_chosen.system != NULL && c->after == TSR_CHAT_AFTER_NOTHING;
    const tsr_chat_message messages[] = {
        {.struct_size = sizeof *messages,
         .role = TSR_CHAT_SYSTEM,
         .text = chat_chosen.system,
         .size_bytes = system ? strlen(chat_chosen.system) : 0},
        {.struct_size = sizeof *messages,
         .role = TSR_CHAT_USER,
         .text = line->text,
         .size_bytes = line->size},
    };
    return tsr_chat_encode(c->tokenizer,
                           tsr_chat_params(.format = c->format, .messages = messages + !system,
                                           .count = 1 + system, .after = c->after,
                                           .begin_reply = true),
                           ids, count);
}

/* Adds ids to the sequence, or begins it with them. */
static tsr_status append(chat *c, const int32_t *ids, int64_t count)
{
    const int64_t most = inference_chosen.max_tokens;
    const tsr_sampling_params sampling = inference_sampling();
    if (c->sequence >= 0)
        return tsr_generator_continue(c->generator, c->sequence, count, ids, most);
    return tsr_generator_add(
        c->generator,
        tsr_sequence_params(.prompt = ids, .prompt_count = count, .sampling = &sampling,
                            .number = c->number, .max_tokens = most,
                            .ignore_end = chat_chosen.ignore_end, .stop = c->end,
                            .stop_count = c->end_count, .grammar = c->start),
        &c->sequence);
}

static tsr_status answer(chat *c, const chat_line *line, tsr_finish *finish)
{
    int32_t *ids = NULL;
    uint64_t count = 0;
    const int64_t length = c->conversation.count;
    tsr_status status = encode(c, line, &ids, &count);
    if (status != TSR_OK)
        return status;
    const int64_t left = c->context > length ? c->context - length : 0;
    if (count > (uint64_t)left && length == 0) {
        NOTE(c,
             "chat: the message has %" PRIu64 " tokens, but the context only %" PRId64
             "; --context makes it longer",
             count, c->context);
    } else if (count > (uint64_t)left) {
        NOTE(c,
             "chat: the message has %" PRIu64 " tokens, and of the context of %" PRId64
             " only %" PRId64 " are left; /clear begins a new conversation",
             count, c->context, left);
    } else {
        status = append(c, ids, (int64_t)count);
        if (status == TSR_OK) {
            chat_conversation_add_message(&c->conversation, line->text, line->size, ids,
                                          (int64_t)count);
            status = reply_to(c, finish);
        }
    }
    tsr_tokenizer_free_ids(&ids);
    return status;
}

/* Commands ------------------------------------------------------------------------------------- */

/* Removes the generator's sequence. The next one has other draws. */
static tsr_status remove_sequence(chat *c)
{
    tsr_status status = TSR_OK;
    if (c->sequence >= 0)
        status = tsr_generator_remove(c->generator, c->sequence);
    c->sequence = -1;
    c->number++;
    return status;
}

static tsr_status clear(chat *c)
{
    chat_conversation_clear(&c->conversation);
    c->after = TSR_CHAT_AFTER_NOTHING;
    return remove_sequence(c);
}

/* Writes another reply to the last message. */
static tsr_status regenerate(chat *c, tsr_finish *finish)
{
    if (c->conversation.entry_count == 0) {
        NOTE(c, "chat: there is no reply to write again");
        return TSR_OK;
    }
    tsr_status status = remove_sequence(c);
    chat_conversation_drop_reply(&c->conversation);
    if (status == TSR_OK)
        status = append(c, c->conversation.ids, c->conversation.count);
    return status == TSR_OK ? reply_to(c, finish) : status;
}

static void save(const chat *c, const char *path)
{
    if (!c->job.first)
        return;
    const int error = chat_conversation_save(&c->conversation, path);
    if (error != 0)
        NOTE(c, "chat: cannot write %s: %s", path, strerror(error));
    else
        NOTE(c, "chat: %s has the conversation, %d message%s and as many replies", path,
             c->conversation.entry_count / 2, CLI_PLURAL(c->conversation.entry_count / 2));
}

static tsr_status obey(chat *c, const chat_line *line, bool *ended, tsr_finish *finish)
{
    char problem[256];
    const char *argument = NULL;
    switch (chat_command_of(line, &argument, problem, sizeof problem)) {
    case CHAT_CLEAR:
        return clear(c);
    case CHAT_REGEN:
        return regenerate(c, finish);
    case CHAT_SAVE:
        save(c, argument);
        return TSR_OK;
    case CHAT_HELP:
        NOTE(c, "chat: /clear begins a new conversation, /regen writes the last reply again, /save "
                "FILE writes the conversation to a file, /exit ends the program, as does the end "
                "of the input; a line that ends with \\ goes on in the next one; Ctrl-C ends a "
                "reply");
        return TSR_OK;
    case CHAT_EXIT:
        *ended = true;
        return TSR_OK;
    case CHAT_MISTAKE:
        NOTE(c, "chat: %s", problem);
        return TSR_OK;
    case CHAT_MESSAGE:
    case CHAT_COMMANDS:
        break;
    }
    return line->size > 0 ? answer(c, line, finish) : TSR_OK;
}

/* Reads messages and replies to them until the input ends or standard output cannot be written to;
 * main reports the latter. In a job of several ranks, an interrupt during a reply ends the
 * conversation: the signal reaches all ranks, and has ended those that had already finished the
 * reply. */
static tsr_status talk(chat *c, int *code)
{
    bool ended = false;
    while (!ended) {
        chat_line line;
        tsr_finish finish = TSR_FINISH_NONE;
        tsr_status status = chat_line_read(c->job.comm, &line);
        if (status == TSR_OK && line.text == NULL) {
            ended = true;
            if (line.error != 0)
                *code = cli_failed("chat: cannot read standard input: %s", strerror(line.error));
        }
        if (status == TSR_OK && line.text != NULL)
            status = obey(c, &line, &ended, &finish);
        free(line.text);
        if (status != TSR_OK || !cli_flush())
            return status;
        if (finish == TSR_FINISH_INTERRUPT && tsr_comm_size(c->job.comm) > 1) {
            *code = INFERENCE_INTERRUPTED;
            ended = true;
        }
    }
    return TSR_OK;
}

/* Prints an error with the prefix "chat: ". If `by_format` is true, the library has written the
 * problem, which then already begins with this prefix. */
static int failed(const char *problem, bool by_format)
{
    char text[MESSAGE];
    snprintf(text, sizeof text, "%s%s", problem, by_format ? " with --format, or --plain" : "");
    return cli_failed_in("chat", text);
}

static int run(int argc, char **argv)
{
    int code = chat_options_read(argc, argv);
    if (code != CLI_DONE)
        return code;
    chat c = {0};
    tsr_status status = open_chat(&c);
    if (status == TSR_OK)
        status = talk(&c, &code);
    if (status != TSR_OK)
        code = failed(inference_problem(&c.job), c.needs_format);
    code = cli_end_output(code); /* before the other ranks fail, because this one leaves them */
    close_chat(&c);
    return code;
}

static void help(FILE *out)
{
    cli_wrap(out, "Talks with a language model that was trained for conversations: each line of "
                  "standard input is a message, to which the model replies. /clear begins a new "
                  "conversation, /regen writes the last reply again, /save FILE writes the "
                  "conversation to a file as JSON, /help lists these commands, /exit or the end of "
                  "the input ends the program, and a line that "
                  "ends with \\ goes on in the next one. Ctrl-C ends a reply. On a terminal, lines "
                  "can be edited, and the arrow keys bring back earlier ones. MODEL is a Hugging "
                  "Face folder or a GGUF file. Under 'tessera launch -n N' or a cluster's "
                  "launcher, the ranks divide the model, and the first one talks.\n");
    chat_options_help(out);
}

const cli_command cli_chat = {
    .name = "chat",
    .usage = "MODEL [options]",
    .summary = "talk with a language model",
    .run = run,
    .help = help,
};
