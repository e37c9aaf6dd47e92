/* Encodes messages: writes the messages and the strings of the format into one text, records which
 * ranges of the text are the format's, and encodes the text. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "tokenizer/chat/chat_formats.h"
#include "tokenizer/encode_text.h"
#include "tokenizer/normalize.h"

/* The text of a conversation. `ranges` are the ranges of the text that come from the chat format.
 * Control tokens are recognised only there, so that a user's message cannot contain any. */
typedef struct script {
    const tsr_tokenizer *tokenizer;
    const tsr__chat_format *format;
    tsr__strings text;
    tsr__text_range *ranges;
    size_t count, capacity;
} script;

/* Writing -------------------------------------------------------------------------------------- */

static tsr_status append_text(script *s, const char *text, size_t size)
{
    TSR__REQUIRE(size <= TSR_TOKENIZER_MAX_TEXT && s->text.size <= TSR_TOKENIZER_MAX_TEXT - size,
                 "chat: a text of %zu bytes and the %zu before it are more than the %d allowed",
                 size, s->text.size, TSR_TOKENIZER_MAX_TEXT);
    return tsr__append(&s->text, text, size);
}

static tsr_status append_token(script *s, int32_t id, const char *what)
{
    TSR__REQUIRE(id >= 0, "chat: the format %s needs the token %s, which the tokenizer lacks",
                 s->format->name, what);
    const tsr__token *token = &s->tokenizer->vocabulary.tokens[id];
    return append_text(s, tsr__token_spelling(&s->tokenizer->vocabulary, id), token->spelling_size);
}

/* Appends a string of the chat format, and adds its range to `ranges`. A range that directly
 * follows another one extends it. NULL is an empty string. */
static tsr_status append_format_string(script *s, const char *string)
{
    const size_t start = s->text.size;
    if (string == NULL)
        return TSR_OK;
    for (; *string != '\0'; string++) {
        if (*string == TSR__CHAT_BOS)
            TSR__TRY(append_token(s, s->tokenizer->bos, "BOS"));
        else if (*string == TSR__CHAT_EOS)
            TSR__TRY(append_token(s, s->tokenizer->eos, "EOS"));
        else
            TSR__TRY(append_text(s, string, 1));
    }
    if (s->text.size == start)
        return TSR_OK;
    if (s->count == 0 || s->ranges[s->count - 1].end != start) {
        void *ranges = s->ranges;
        TSR__TRY(tsr__grow(&ranges, &s->capacity, s->count + 1, sizeof *s->ranges));
        s->ranges = ranges;
        s->ranges[s->count++].start = start;
    }
    s->ranges[s->count - 1].end = s->text.size;
    return TSR_OK;
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static tsr_status append_message(script *s, const tsr_chat_message *message)
{
    const bool strips =
        message->role == TSR_CHAT_SYSTEM ? s->format->strips_system : s->format->strips;
    const char *text = message->text;
    size_t size = message->size_bytes;
    while (strips && size > 0 && is_space(text[size - 1]))
        size--;
    while (strips && size > 0 && is_space(*text)) {
        text++;
        size--;
    }
    return size > 0 ? append_text(s, text, size) : TSR_OK;
}

static tsr_status append_system(script *s, const tsr_chat_message *message)
{
    TSR__TRY(append_format_string(s, s->format->system[0]));
    TSR__TRY(append_message(s, message));
    return append_format_string(s, s->format->system[1]);
}

/* Appends a message of the user, with the system's message inside if `system` is not NULL. If it
 * follows a reply whose last token also begins the user's messages, this token is not repeated. */
static tsr_status append_user(script *s, const tsr_chat_message *message,
                              const tsr_chat_message *system, bool follows_reply)
{
    const bool begun = follows_reply && s->format->after_end == NULL;
    TSR__TRY(append_format_string(s, s->format->user[0] + (begun ? strlen(s->format->end) : 0)));
    if (system != NULL)
        TSR__TRY(append_system(s, system));
    TSR__TRY(append_message(s, message));
    return append_format_string(s, s->format->user[1]);
}

static bool is_before_calls(tsr_chat_role role)
{
    return role == TSR_CHAT_REASONING || role == TSR_CHAT_PREAMBLE;
}

/* Begins message i, which is the assistant's, unless it goes on with what the one before began. */
static tsr_status append_header(script *s, const tsr_chat_params *params, int i)
{
    const bool goes_on =
        s->format->one_header && i > 0 && is_before_calls(params->messages[i - 1].role);
    return goes_on ? TSR_OK : append_format_string(s, s->format->header);
}

/* Appends a reply, without its header, up to the token that ends it. The string that the format has
 * after this token is appended with the next message, because the model does not generate it. */
static tsr_status append_reply(script *s, const tsr_chat_message *message)
{
    TSR__TRY(append_format_string(s, s->format->before));
    TSR__TRY(append_message(s, message));
    return append_format_string(s, s->format->end);
}

/* Appends a turn's text with the format's strings around it. */
static tsr_status append_between(script *s, const char *const around[2],
                                 const tsr_chat_message *message)
{
    TSR__TRY(append_format_string(s, around[0]));
    TSR__TRY(append_message(s, message));
    return append_format_string(s, around[1]);
}

/* Appends the name of a message's tool, or the id of its call, if the format has it: the string
 * `after` follows it. */
static tsr_status append_name(script *s, const char *name, const char *after)
{
    if (after == NULL)
        return TSR_OK;
    TSR__TRY(append_text(s, name, strlen(name)));
    return append_format_string(s, after);
}

/* Appends calls without their header. `ends`: no further call of this reply follows. */
static tsr_status append_calls(script *s, const tsr_chat_message *message, bool ends)
{
    const char *end = s->format->call_end;
    TSR__TRY(append_format_string(s, s->format->calls));
    TSR__TRY(append_name(s, message->tool, s->format->call_name));
    TSR__TRY(append_name(s, message->call_id, s->format->call_id));
    TSR__TRY(append_message(s, message));
    return ends ? append_format_string(s, end != NULL ? end : s->format->end) : TSR_OK;
}

static tsr_status append_result(script *s, const tsr_chat_message *message)
{
    TSR__TRY(append_format_string(s, s->format->result[0]));
    TSR__TRY(append_name(s, message->tool, s->format->result_name));
    TSR__TRY(append_name(s, message->call_id, s->format->result_id));
    TSR__TRY(append_message(s, message));
    return append_format_string(s, s->format->result[1]);
}

/* Appends a message in which the assistant goes on after this one. */
static tsr_status append_before_calls(script *s, const tsr_chat_params *params, int i)
{
    const tsr_chat_message *message = &params->messages[i];
    TSR__TRY(append_header(s, params, i));
    return append_between(
        s, message->role == TSR_CHAT_REASONING ? s->format->reasoning : s->format->preamble,
        message);
}

static tsr_status append_introduction(script *s, const tsr_chat_params *params)
{
    static const char *const efforts[] = {"medium", "medium", "low", "medium", "high"};
    const char *const *texts = s->format->introduction;
    TSR__TRY(append_format_string(s, texts[0]));
    if (!s->format->efforts)
        return TSR_OK;
    TSR__TRY(append_format_string(s, efforts[params->reasoning]));
    TSR__TRY(append_format_string(s, texts[1]));
    if (params->messages[0].role == TSR_CHAT_TOOLS)
        TSR__TRY(append_format_string(s, texts[2]));
    return append_format_string(s, texts[3]);
}

static tsr_status append_start(script *s, const tsr_chat_params *params)
{
    if (params->after == TSR_CHAT_AFTER_NOTHING) {
        if (s->tokenizer->before == 0)
            TSR__TRY(append_format_string(s, s->format->bos));
        return append_introduction(s, params);
    }
    if (params->after == TSR_CHAT_AFTER_CUT)
        TSR__TRY(append_format_string(s, s->format->end));
    return append_format_string(s, s->format->after_end);
}

static bool has_token(const script *s, const char *spelling)
{
    return tsr_tokenizer_find(s->tokenizer, spelling, strlen(spelling)) >= 0;
}

/* Begins the model's reply, as it does after its header, or as its template does for models whose
 * prompts begin the reasoning. */
static tsr_status append_begin(script *s, tsr_chat_reasoning reasoning)
{
    static const char think[] = "<think>", open[] = "<think>\n";
    const char *answer = s->format->answer, *begin = s->format->begin;
    const bool marked = answer != NULL && strstr(answer, think) != NULL,
               thinks = !marked || (has_token(s, think) && has_token(s, "</think>"));
    bool empty = reasoning == TSR_CHAT_REASONING_NONE && answer != NULL && thinks;
    if (begin == NULL && marked && thinks && strncmp(answer, open, sizeof open - 1) == 0) {
        const tsr__chat_begin of = tsr__chat_template_begin(s->tokenizer->chat_template);
        empty =
            empty || (of == TSR__CHAT_BEGIN_MAY_THINK && reasoning == TSR_CHAT_REASONING_DEFAULT);
        begin = of != TSR__CHAT_BEGIN_HEADER ? open : NULL;
    }
    return append_format_string(s, empty ? answer : begin);
}

/* Appends a reply, or a message with calls, and what the format has after its end. */
static tsr_status append_turn(script *s, const tsr_chat_params *params, int i)
{
    const tsr_chat_message *message = &params->messages[i];
    const bool last = i + 1 == params->count;
    const bool goes_on = s->format->several_calls && !last && message->role == TSR_CHAT_CALLS &&
                         message[1].role == TSR_CHAT_CALLS;
    TSR__TRY(append_header(s, params, i));
    TSR__TRY(message->role == TSR_CHAT_CALLS ? append_calls(s, message, !goes_on)
                                             : append_reply(s, message));
    return last || goes_on ? TSR_OK : append_format_string(s, s->format->after_end);
}

static tsr_status append_all(script *s, const tsr_chat_params *params)
{
    const tsr_chat_message *messages = params->messages, *system = NULL;
    bool follows_reply = params->after != TSR_CHAT_AFTER_NOTHING;
    TSR__TRY(append_start(s, params));
    for (int i = 0; i < params->count; i++) {
        if (messages[i].role == TSR_CHAT_TOOLS) {
            TSR__TRY(append_between(s, s->format->tools, &messages[i]));
        } else if (messages[i].role == TSR_CHAT_RESULT) {
            TSR__TRY(append_result(s, &messages[i]));
        } else if (is_before_calls(messages[i].role)) {
            TSR__TRY(append_before_calls(s, params, i));
        } else if (messages[i].role == TSR_CHAT_ASSISTANT || messages[i].role == TSR_CHAT_CALLS) {
            TSR__TRY(append_turn(s, params, i));
            follows_reply = true;
        } else if (messages[i].role == TSR_CHAT_USER) {
            TSR__TRY(append_user(s, &messages[i], system, follows_reply));
            system = NULL;
        } else if (s->format->system_in_user) {
            system = &messages[i];
        } else {
            TSR__TRY(append_system(s, &messages[i]));
        }
    }
    const tsr_chat_role last = messages[params->count - 1].role;
    if ((last != TSR_CHAT_USER && last != TSR_CHAT_RESULT) || !params->begin_reply)
        return TSR_OK;
    TSR__TRY(append_format_string(s, s->format->header));
    return append_begin(s, params->reasoning);
}

/* Checks --------------------------------------------------------------------------------------- */

static const char *role_name(tsr_chat_role role)
{
    static const char *const names[] = {"system", "user",   "assistant", "tools",
                                        "calls",  "result", "reasoning", "preamble"};
    return (int)role >= 0 && (int)role < 8 ? names[role] : "?";
}

/* Returns whether a message is in a place where its role may be; `turn` is that of the user or of
 * the assistant. */
static bool may_be(const tsr_chat_params *p, int i, tsr_chat_role turn,
                   const tsr__chat_format *format)
{
    const tsr_chat_role before = i > 0 ? p->messages[i - 1].role : TSR_CHAT_ASSISTANT;
    switch (p->messages[i].role) {
    case TSR_CHAT_TOOLS:
        if (format->tools_replace_system)
            return i == 0 && p->after == TSR_CHAT_AFTER_NOTHING && p->count > 1;
        return turn == TSR_CHAT_USER && before != TSR_CHAT_TOOLS && i + 1 < p->count &&
               p->messages[i + 1].role == TSR_CHAT_USER;
    case TSR_CHAT_RESULT:
        return before == TSR_CHAT_CALLS || before == TSR_CHAT_RESULT;
    case TSR_CHAT_CALLS:
        return turn == TSR_CHAT_ASSISTANT || (format->several_calls && before == TSR_CHAT_CALLS);
    case TSR_CHAT_REASONING:
    case TSR_CHAT_PREAMBLE:
        return turn == TSR_CHAT_ASSISTANT && i + 1 < p->count &&
               (p->messages[i + 1].role == TSR_CHAT_CALLS ||
                p->messages[i + 1].role == TSR_CHAT_PREAMBLE ||
                (format->one_header && p->messages[i].role == TSR_CHAT_REASONING &&
                 p->messages[i + 1].role == TSR_CHAT_ASSISTANT));
    default:
        return p->messages[i].role == turn;
    }
}

static tsr_status check_count(const tsr_chat_params *p)
{
    TSR__REQUIRE(p->count >= 1 && p->count <= TSR_CHAT_MAX_MESSAGES && p->messages != NULL,
                 "chat: there are %d messages%s; 1 to %d are possible", p->count,
                 p->messages == NULL ? " at NULL" : "", TSR_CHAT_MAX_MESSAGES);
    return TSR_OK;
}

/* Checks that a call or a result names what the format writes of it. */
static tsr_status check_names(const tsr_chat_message *m, int i, const tsr__chat_format *format)
{
    const bool is_call = m->role == TSR_CHAT_CALLS, is_result = m->role == TSR_CHAT_RESULT;
    const bool needs_tool = (is_call && format->call_name) || (is_result && format->result_name);
    const bool needs_id = (is_call && format->call_id) || (is_result && format->result_id);
    TSR__REQUIRE(!needs_tool || m->tool != NULL,
                 "chat: message %d has no tool, which the format %s needs", i, format->name);
    TSR__REQUIRE(!needs_id || m->call_id != NULL,
                 "chat: message %d has no id of a call, which the format %s needs", i,
                 format->name);
    return TSR_OK;
}

static tsr_status check_messages(const tsr_chat_params *p, const tsr__chat_format *format)
{
    const bool has_system =
        p->after == TSR_CHAT_AFTER_NOTHING && p->messages[0].role == TSR_CHAT_SYSTEM;
    tsr_chat_role turn = TSR_CHAT_USER;
    for (int i = 0; i < p->count; i++) {
        const tsr_chat_message *m = &p->messages[i];
        const tsr_chat_role wanted = has_system && i == 0 ? TSR_CHAT_SYSTEM : turn;
        TSR__REQUIRE(may_be(p, i, wanted, format),
                     "chat: message %d is the %s's (%d) instead of the %s's", i, role_name(m->role),
                     (int)m->role, role_name(wanted));
        if (m->role != TSR_CHAT_SYSTEM && m->role != TSR_CHAT_TOOLS && !is_before_calls(m->role))
            turn = m->role == TSR_CHAT_USER || m->role == TSR_CHAT_RESULT ? TSR_CHAT_ASSISTANT
                                                                          : TSR_CHAT_USER;
        TSR__REQUIRE(m->text != NULL || m->size_bytes == 0,
                     "chat: the text of message %d is NULL, but has %zu bytes", i, m->size_bytes);
        TSR__TRY(check_names(m, i, format));
    }
    TSR__REQUIRE(!has_system || p->count > 1, "chat: the system's message has none of the user "
                                              "after it");
    return TSR_OK;
}

static tsr_status check_chat_params(const tsr_tokenizer *tokenizer, const tsr_chat_params *p,
                                    const tsr__chat_format **format)
{
    tsr_chat_format chosen = p->format;
    if (chosen == TSR_CHAT_MODEL)
        TSR__TRY(tsr_chat_format_of(tokenizer, &chosen));
    *format = tsr__chat_format_get(chosen);
    TSR__REQUIRE(*format != NULL, "chat: format is %d; 0 to %d are possible", (int)chosen,
                 TSR_CHAT_FORMATS - 1);
    TSR__TRY(check_messages(p, *format));
    for (int i = 0; i < p->count; i++) {
        const tsr_chat_role role = p->messages[i].role;
        TSR__REQUIRE(
            !(role == TSR_CHAT_TOOLS && !(*format)->tools[0]) &&
                !((role == TSR_CHAT_CALLS || role == TSR_CHAT_RESULT) && !(*format)->calls),
            "chat: the format %s has no messages with %s of tools (message %d)", (*format)->name,
            role == TSR_CHAT_TOOLS ? "lists" : role_name(role), i);
        TSR__REQUIRE(!(role == TSR_CHAT_REASONING && !(*format)->reasoning[0]) &&
                         !(role == TSR_CHAT_PREAMBLE && !(*format)->preamble[0]),
                     "chat: the format %s has no messages with a %s (message %d)", (*format)->name,
                     role_name(role), i);
    }
    return TSR_OK;
}

/* Encodes params whose messages have the library's size. */
static tsr_status encode_messages(const tsr_tokenizer *tokenizer, const tsr_chat_params *params,
                                  int32_t **ids, uint64_t *count)
{
    script s = {.tokenizer = tokenizer};
    TSR__TRY(check_chat_params(tokenizer, params, &s.format));
    tsr_status status = append_all(&s, params);
    if (status == TSR_OK) {
        const bool starts = params->after == TSR_CHAT_AFTER_NOTHING;
        const tsr__encode_how how = {.control = {.ranges = s.ranges, .count = s.count},
                                     .starts = starts,
                                     .adds_before = starts};
        status = tsr__tokenizer_encode_with(tokenizer, s.text.data != NULL ? s.text.data : "",
                                            s.text.size, &how, ids, count);
    }
    tsr__free(s.text.data);
    tsr__free(s.ranges);
    return status;
}

tsr_status tsr_chat_encode(const tsr_tokenizer *tokenizer, const tsr_chat_params *params,
                           int32_t **ids, uint64_t *count)
{
    TSR__REQUIRE(tokenizer != NULL && params != NULL && ids != NULL && count != NULL,
                 "chat: %s is NULL",
                 tokenizer == NULL ? "the tokenizer"
                 : params == NULL  ? "params"
                 : ids == NULL     ? "ids"
                                   : "count");
    TSR__TAKE(tsr_chat_params, params);
    TSR__REQUIRE((int)params->after >= 0 && (int)params->after <= TSR_CHAT_AFTER_CUT,
                 "chat: after is %d", (int)params->after);
    TSR__REQUIRE((int)params->reasoning >= 0 && (int)params->reasoning <= TSR_CHAT_REASONING_HIGH,
                 "chat: reasoning is %d", (int)params->reasoning);
    TSR__TRY(check_count(params));
    void *messages = NULL;
    TSR__TRY(tsr__struct_take_array("tsr_chat_message", sizeof(tsr_chat_message),
                                    (uint64_t)params->count, params->messages, &messages));
    tsr_chat_params own = *params;
    own.messages = messages;
    const tsr_status status = encode_messages(tokenizer, &own, ids, count);
    tsr__free(messages);
    return status;
}
