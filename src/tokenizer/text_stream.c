/* A text stream gives out text as soon as later tokens can no longer change that text, and ends at
 * stop strings. It keeps the channels of a reply apart. */
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "base/struct_size.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

typedef struct stop {
    uint64_t start; /* where the text starts in `strings` */
    size_t size;
} stop;

/* The tokens that begin and end channels. */
typedef enum mark {
    MARK_THINK,        /* the reasoning begins */
    MARK_THOUGHT,      /* a name follows, up to the end of the line, and then the reasoning */
    MARK_THINKING,     /* the reasoning begins, of Mistral's models */
    MARK_END_THINK,    /* the answer begins */
    MARK_END_THINKING, /* the answer begins */
    MARK_END_THOUGHT,  /* the answer begins */
    MARK_START,        /* a role follows, and then MARK_CHANNEL or MARK_MESSAGE */
    MARK_CHANNEL,      /* a channel's name follows, and then MARK_MESSAGE */
    MARK_MESSAGE,      /* the text of the channel that was named follows */
    MARK_CALLS,        /* the name of a tool follows, and then MARK_CALL_ID or MARK_ARGS */
    MARK_CALL_ID,      /* the id of the call follows, and then MARK_ARGS */
    MARK_ARGS,         /* the arguments of the call follow */
    MARKS
} mark;

static const char *const mark_spellings[MARKS] = {
    [MARK_THINK] = "<think>",       [MARK_THOUGHT] = "<|channel>",
    [MARK_END_THINK] = "</think>",  [MARK_END_THOUGHT] = "<channel|>",
    [MARK_THINKING] = "[THINK]",    [MARK_END_THINKING] = "[/THINK]",
    [MARK_START] = "<|start|>",     [MARK_CHANNEL] = "<|channel|>",
    [MARK_MESSAGE] = "<|message|>", [MARK_CALLS] = "[TOOL_CALLS]",
    [MARK_CALL_ID] = "[CALL_ID]",   [MARK_ARGS] = "[ARGS]"};

static const char assistant[] = "<｜Assistant｜>";

/* The channel at the end of the text that has been added. */
typedef struct channel_state {
    tsr_text_channel channel;
    mark name_of; /* the mark of which the text is the name; MARKS: it is no name */
    bool begins;  /* no text of the channel has been added, so that line breaks are left out */
    char recipient[TSR_TEXT_STREAM_MAX_RECIPIENT + 1];
    /* the beginning of the name, which may include a recipient, followed by a zero byte */
    char name[TSR_TEXT_STREAM_MAX_RECIPIENT + 48];
} channel_state;

struct tsr_text_stream {
    const tsr_tokenizer *tokenizer;
    tsr_decode_state state;
    tsr_text_invalid invalid;
    stop *stops; /* [stop_count] */
    int stop_count;
    tsr__strings strings;
    /* The bytes that have not been given out yet. The first `of_prompt` bytes belong to the prompt,
     * in which stop strings are not searched. */
    char *held;
    size_t held_size, held_capacity, of_prompt;
    /* the text that the last call gave out */
    char *given;
    size_t given_capacity;
    bool has_generated, ended;
    int32_t marks[MARKS]; /* ids; -1: the vocabulary lacks the token, or channels are not wanted */
    int32_t assistant;    /* DeepSeek's token before a reply, no control token; -1: there is none */
    channel_state at;
    /* of the text that the last call gave out */
    tsr_text_channel given_channel;
    char given_recipient[TSR_TEXT_STREAM_MAX_RECIPIENT + 1];
};

/* Creating ------------------------------------------------------------------------------------- */

static tsr_status check_stream_params(const tsr_text_stream_params *p)
{
    TSR__REQUIRE(p->tokenizer != NULL, "text stream: the tokenizer is NULL");
    TSR__REQUIRE(p->stop_count >= 0 && p->stop_count <= TSR_TEXT_STREAM_MAX_STOPS,
                 "text stream: stop_count is %d; 0 to %d is possible", p->stop_count,
                 TSR_TEXT_STREAM_MAX_STOPS);
    TSR__REQUIRE(p->stops != NULL || p->stop_count == 0,
                 "text stream: stops is NULL, but stop_count %d", p->stop_count);
    TSR__REQUIRE(p->control == TSR_DECODE_CONTROL_SKIP || p->control == TSR_DECODE_CONTROL_SPELL,
                 "text stream: control is %d", (int)p->control);
    TSR__REQUIRE(p->invalid == TSR_TEXT_INVALID_KEEP || p->invalid == TSR_TEXT_INVALID_REPLACE,
                 "text stream: invalid is %d", (int)p->invalid);
    for (int i = 0; i < p->stop_count; i++) {
        const char *text = p->stops[i];
        TSR__REQUIRE(text != NULL, "text stream: stop string %d is NULL", i);
        const size_t size = strlen(text);
        TSR__REQUIRE(size > 0, "text stream: stop string %d is empty", i);
        TSR__REQUIRE(size <= TSR_TEXT_STREAM_MAX_STOP_BYTES,
                     "text stream: stop string %d has %zu bytes; at most %d are possible", i, size,
                     TSR_TEXT_STREAM_MAX_STOP_BYTES);
    }
    return TSR_OK;
}

/* Finds the ids of the marks. Marks count only if the vocabulary has all that belong together. */
static void find_marks(tsr_text_stream *s, bool wanted)
{
    static const mark sets[][3] = {{MARK_THINK, MARK_END_THINK, MARK_THINK},
                                   {MARK_THOUGHT, MARK_END_THOUGHT, MARK_THOUGHT},
                                   {MARK_THINKING, MARK_END_THINKING, MARK_THINKING},
                                   {MARK_START, MARK_CHANNEL, MARK_MESSAGE},
                                   {MARK_CALLS, MARK_ARGS, MARK_ARGS}};
    for (size_t set = 0; set < sizeof sets / sizeof *sets; set++) {
        bool complete = wanted;
        for (int i = 0; i < 3; i++) {
            const char *spelling = mark_spellings[sets[set][i]];
            const int32_t id = tsr_tokenizer_find(s->tokenizer, spelling, strlen(spelling));
            s->marks[sets[set][i]] = id;
            complete = complete && id >= 0;
        }
        for (int i = 0; i < 3 && !complete; i++)
            s->marks[sets[set][i]] = -1;
    }
    /* Calls have no ids with some of the models that have [ARGS]. */
    const char *id = mark_spellings[MARK_CALL_ID];
    s->marks[MARK_CALL_ID] =
        s->marks[MARK_ARGS] >= 0 ? tsr_tokenizer_find(s->tokenizer, id, strlen(id)) : -1;
}

static tsr_status init_stream(const tsr_text_stream_params *p, tsr_text_stream *s)
{
    s->tokenizer = p->tokenizer;
    s->state = TSR_INIT(tsr_decode_state);
    s->state.control = p->control;
    s->invalid = p->invalid;
    s->at.name_of = MARKS;
    find_marks(s, p->channels);
    s->assistant = tsr_tokenizer_find(s->tokenizer, assistant, sizeof assistant - 1);
    s->stops = tsr__calloc((size_t)p->stop_count, sizeof *s->stops);
    if (s->stops == NULL)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < p->stop_count; i++) {
        s->stops[i].size = strlen(p->stops[i]);
        TSR__TRY(tsr__strings_add(&s->strings, p->stops[i], s->stops[i].size, &s->stops[i].start));
        s->stop_count++;
    }
    return TSR_OK;
}

tsr_status tsr_text_stream_create(const tsr_text_stream_params *params, tsr_text_stream **out)
{
    TSR__REQUIRE(params != NULL && out != NULL, "text stream: %s is NULL",
                 params == NULL ? "params" : "out");
    TSR__TAKE(tsr_text_stream_params, params);
    TSR__TRY(check_stream_params(params));
    tsr_text_stream *stream = tsr__calloc(1, sizeof *stream);
    if (stream == NULL)
        return TSR_ERR_NO_MEMORY;
    const tsr_status status = init_stream(params, stream);
    if (status != TSR_OK) {
        tsr_text_stream_destroy(&stream);
        return status;
    }
    *out = stream;
    return TSR_OK;
}

void tsr_text_stream_destroy(tsr_text_stream **stream)
{
    if (stream == NULL || *stream == NULL)
        return;
    tsr_text_stream *old = *stream;
    tsr__free(old->stops);
    tsr__free(old->strings.data);
    tsr__free(old->held);
    tsr__free(old->given);
    tsr__free(old);
    *stream = NULL;
}

/* What is certain ------------------------------------------------------------------------------ */

static const char *text_of(const tsr_text_stream *s, const stop *one)
{
    return s->strings.data + one->start;
}

/* Returns where the first stop string in the held bytes starts, or SIZE_MAX if there is none. */
static size_t find_stop(const tsr_text_stream *s)
{
    if (s->at.channel != TSR_TEXT_ANSWER)
        return SIZE_MAX;
    for (size_t offset = s->of_prompt; offset < s->held_size; offset++)
        for (int i = 0; i < s->stop_count; i++)
            if (s->stops[i].size <= s->held_size - offset &&
                memcmp(s->held + offset, text_of(s, &s->stops[i]), s->stops[i].size) == 0)
                return offset;
    return SIZE_MAX;
}

/* Returns the size of the held bytes without the line breaks at their end. */
static size_t size_before_breaks(const tsr_text_stream *s)
{
    size_t size = s->held_size;
    while (size > s->of_prompt && s->held[size - 1] == '\n')
        size--;
    return size;
}

/* Finds the longest suffix of the held bytes that later tokens may make part of a stop string, or
 * that is left out if the channel ends. Returns the number of bytes before this suffix. */
static size_t size_before_stop(const tsr_text_stream *s)
{
    if (s->at.channel != TSR_TEXT_ANSWER)
        return size_before_breaks(s);
    for (size_t offset = s->of_prompt; offset < s->held_size; offset++)
        for (int i = 0; i < s->stop_count; i++)
            if (s->held_size - offset < s->stops[i].size &&
                memcmp(s->held + offset, text_of(s, &s->stops[i]), s->held_size - offset) == 0)
                return offset;
    return s->held_size;
}

/* Returns the size of a text without the incomplete character at its end, if there is one. */
static size_t complete_size(const char *text, size_t size)
{
    for (size_t back = 1; back <= 3 && back <= size; back++) {
        const unsigned char byte = (unsigned char)text[size - back];
        if ((byte & 0xc0) == 0x80)
            continue;
        const size_t whole = byte >= 0xf8   ? 0
                             : byte >= 0xf0 ? 4
                             : byte >= 0xe0 ? 3
                             : byte >= 0xc0 ? 2
                                            : 0;
        return whole > back ? size - back : size;
    }
    return size;
}

/* Giving out ----------------------------------------------------------------------------------- */

/* Reserves memory for `held` bytes in the stream and for giving out all of them, so that no call
 * fails after it has changed the stream. The text given out may be longer, because 3 bytes may
 * replace each byte that is not UTF-8. */
static tsr_status need_room(tsr_text_stream *s, size_t held)
{
    void *memory = s->held;
    TSR__TRY(tsr__grow(&memory, &s->held_capacity, held + 1, 1));
    s->held = memory;
    memory = s->given;
    TSR__TRY(tsr__grow(&memory, &s->given_capacity, 3 * held + 1, 1));
    s->given = memory;
    return TSR_OK;
}

/* Copies the first `size` held bytes to `given`, and replaces what is not UTF-8 if the stream does
 * that. Returns the size of the copy. */
static size_t copy_held(const tsr_text_stream *s, size_t size)
{
    static const char replacement[] = "\xef\xbf\xbd";
    size_t used = 0;
    for (size_t offset = 0, length; offset < size; offset += length) {
        uint32_t code;
        length = tsr__character(s->held + offset, size - offset, &code);
        const bool replaces = code == TSR__NOT_UTF8 && s->invalid == TSR_TEXT_INVALID_REPLACE;
        const size_t copied = replaces ? sizeof replacement - 1 : length;
        memcpy(s->given + used, replaces ? replacement : s->held + offset, copied);
        used += copied;
    }
    s->given[used] = '\0';
    return used;
}

/* Gives out the first `size` held bytes, and keeps the others. */
static void give_out_held(tsr_text_stream *s, size_t size, const char **text, size_t *size_bytes)
{
    *size_bytes = copy_held(s, size);
    *text = s->given;
    s->held_size -= size;
    if (size > 0 && s->held_size > 0)
        memmove(s->held, s->held + size, s->held_size);
    s->of_prompt = s->of_prompt > size ? s->of_prompt - size : 0;
}

/* Channels ------------------------------------------------------------------------------------- */

static mark find_mark(const tsr_text_stream *s, int32_t id)
{
    int i = 0;
    while (i < MARKS && s->marks[i] != id)
        i++;
    return (mark)i;
}

/* Returns whether text in this state is text of a channel, not a name. */
static bool is_text(const channel_state *state)
{
    return state->name_of == MARKS;
}

static void begin_channel(channel_state *state, tsr_text_channel channel)
{
    state->channel = channel;
    state->name_of = MARKS;
    state->begins = true;
}

static void begin_name(channel_state *state, mark found)
{
    state->name_of = found;
    state->name[0] = '\0';
}

/* Takes the recipient from a name: "assistant to=functions.f" or "commentary to=functions.f json".
 */
static void take_recipient(channel_state *state)
{
    const char *at = strstr(state->name, " to=");
    if (at == NULL)
        return;
    const size_t size = strcspn(at + 4, " \n\t");
    if (size > TSR_TEXT_STREAM_MAX_RECIPIENT)
        return;
    memcpy(state->recipient, at + 4, size);
    state->recipient[size] = '\0';
}

static tsr_text_channel channel_by_name(const char *name)
{
    return strncmp(name, "analysis", 8) == 0      ? TSR_TEXT_REASONING
           : strncmp(name, "commentary", 10) == 0 ? TSR_TEXT_COMMENTARY
                                                  : TSR_TEXT_ANSWER;
}

/* Takes the name of the tool after [TOOL_CALLS]. */
static void take_tool(channel_state *state)
{
    const char *name = state->name + strspn(state->name, " \n\t");
    const size_t size = strcspn(name, " \n\t");
    if (size > TSR_TEXT_STREAM_MAX_RECIPIENT)
        return;
    memcpy(state->recipient, name, size);
    state->recipient[size] = '\0';
}

static void pass_mark(channel_state *state, mark found)
{
    if (is_text(state))
        state->recipient[0] = '\0';
    else if (state->name_of == MARK_CALLS)
        take_tool(state);
    else if (state->name_of != MARK_CALL_ID)
        take_recipient(state);
    if (found == MARK_START || found == MARK_CALLS)
        state->recipient[0] = '\0';
    if (found == MARK_THINK || found == MARK_THINKING)
        begin_channel(state, TSR_TEXT_REASONING);
    else if (found == MARK_END_THINK || found == MARK_END_THINKING || found == MARK_END_THOUGHT)
        begin_channel(state, TSR_TEXT_ANSWER);
    else if (found == MARK_ARGS)
        begin_channel(state, TSR_TEXT_COMMENTARY);
    else if (found == MARK_MESSAGE)
        begin_channel(state, state->name_of == MARK_CHANNEL ? channel_by_name(state->name)
                                                            : TSR_TEXT_ANSWER);
    else
        begin_name(state, found);
}

/* Takes the bytes that belong to a name, and returns their number. */
static size_t take_name(channel_state *state, const char *bytes, size_t size)
{
    if (is_text(state))
        return 0;
    if (state->name_of == MARK_CALLS && strspn(state->name, " ") == strlen(state->name) &&
        memchr(bytes, '[', size) != NULL) {
        begin_channel(state, TSR_TEXT_ANSWER); /* a list of calls, as older models write it */
        return 0;
    }
    const char *line_end = state->name_of == MARK_THOUGHT ? memchr(bytes, '\n', size) : NULL;
    if (line_end != NULL) {
        begin_channel(state, TSR_TEXT_REASONING);
        return (size_t)(line_end - bytes) + 1;
    }
    const size_t used = strlen(state->name), left = sizeof state->name - 1 - used;
    const size_t taken = size < left ? size : left;
    memcpy(state->name + used, bytes, taken);
    state->name[used + taken] = '\0';
    return size;
}

/* Takes the line breaks at the start of a channel, and returns their number. */
static size_t take_breaks(channel_state *state, const char *bytes, size_t size)
{
    size_t count = 0;
    while (state->begins && count < size && bytes[count] == '\n')
        count++;
    state->begins = state->begins && count == size;
    return count;
}

/* Notes where the text belongs that is given out next. */
static void note_given(tsr_text_stream *s)
{
    s->given_channel = s->at.channel;
    memcpy(s->given_recipient, s->at.recipient, sizeof s->given_recipient);
}

/* Adding --------------------------------------------------------------------------------------- */

/* Appends the bytes of a token to the held ones. If the token is a mark, sets *found to it, and
 * appends nothing. */
static tsr_status hold(tsr_text_stream *s, int32_t id, mark *found)
{
    const char *bytes = NULL;
    size_t size = 0;
    tsr_decode_state state = s->state;
    TSR__REQUIRE(!s->ended, "text stream: token %d comes after the end of the text", (int)id);
    TSR__TRY(tsr_tokenizer_decode_next(s->tokenizer, &state, id, &bytes, &size));
    TSR__TRY(need_room(s, s->held_size + size));
    s->state = state;
    *found = find_mark(s, id);
    if (*found != MARKS)
        return TSR_OK;
    size_t skipped = 0;
    if (size > 0) {
        skipped = take_name(&s->at, bytes, size);
        skipped += take_breaks(&s->at, bytes + skipped, size - skipped);
    }
    if (size > skipped)
        memcpy(s->held + s->held_size, bytes + skipped, size - skipped);
    s->held_size += size - skipped;
    return TSR_OK;
}

/* Gives out the text before a mark, and begins what follows the mark. */
static void give_out_before(tsr_text_stream *s, mark found, const char **text, size_t *size_bytes)
{
    if (s->at.channel != TSR_TEXT_ANSWER)
        s->held_size = size_before_breaks(s);
    give_out_held(s, s->held_size, text, size_bytes);
    pass_mark(&s->at, found);
}

/* A control token of the prompt ends what the text before it began, such as the reasoning after
 * <think> in a user's message: only what follows the last control token, which is in the reply's
 * header, counts. Names after <|start|> and <|channel|> may contain control tokens. */
static void pass_control(tsr_text_stream *s, int32_t id)
{
    const bool is_name = s->at.name_of == MARK_START || s->at.name_of == MARK_CHANNEL;
    if (is_name || (id != s->assistant && !tsr__is_control(&s->tokenizer->vocabulary.tokens[id])))
        return;
    begin_channel(&s->at, TSR_TEXT_ANSWER);
    s->at.recipient[0] = '\0';
    s->at.begins = false;
}

tsr_status tsr_text_stream_add_prompt(tsr_text_stream *s, int32_t id, const char **text,
                                      size_t *size_bytes)
{
    TSR__REQUIRE(s != NULL && text != NULL && size_bytes != NULL, "text stream: %s is NULL",
                 s == NULL      ? "the stream"
                 : text == NULL ? "text"
                                : "size_bytes");
    TSR__REQUIRE(!s->has_generated,
                 "text stream: token %d of the prompt comes after generated ones", (int)id);
    mark found = MARKS;
    TSR__TRY(hold(s, id, &found));
    s->of_prompt = s->held_size;
    note_given(s);
    if (found != MARKS)
        pass_mark(&s->at, found);
    else
        pass_control(s, id);
    give_out_held(s, complete_size(s->held, s->held_size), text, size_bytes);
    return TSR_OK;
}

tsr_status tsr_text_stream_add(tsr_text_stream *s, int32_t id, const char **text,
                               size_t *size_bytes, bool *stopped)
{
    TSR__REQUIRE(s != NULL && text != NULL && size_bytes != NULL && stopped != NULL,
                 "text stream: %s is NULL",
                 s == NULL            ? "the stream"
                 : text == NULL       ? "text"
                 : size_bytes == NULL ? "size_bytes"
                                      : "stopped");
    mark found = MARKS;
    TSR__TRY(hold(s, id, &found));
    s->has_generated = true;
    note_given(s);
    *stopped = false;
    if (found != MARKS) {
        give_out_before(s, found, text, size_bytes);
        return TSR_OK;
    }
    const size_t stop_start = find_stop(s);
    s->ended = stop_start != SIZE_MAX;
    *stopped = s->ended;
    if (s->ended)
        s->held_size = stop_start;
    give_out_held(s, s->ended ? stop_start : complete_size(s->held, size_before_stop(s)), text,
                  size_bytes);
    return TSR_OK;
}

tsr_status tsr_text_stream_end(tsr_text_stream *s, const char **text, size_t *size_bytes)
{
    TSR__REQUIRE(s != NULL && text != NULL && size_bytes != NULL, "text stream: %s is NULL",
                 s == NULL      ? "the stream"
                 : text == NULL ? "text"
                                : "size_bytes");
    TSR__TRY(need_room(s, s->held_size));
    s->ended = true;
    note_given(s);
    give_out_held(s, s->held_size, text, size_bytes);
    return TSR_OK;
}

tsr_text_channel tsr_text_stream_channel(const tsr_text_stream *stream)
{
    return stream != NULL ? stream->given_channel : TSR_TEXT_ANSWER;
}

const char *tsr_text_stream_recipient(const tsr_text_stream *stream)
{
    return stream != NULL ? stream->given_recipient : "";
}
