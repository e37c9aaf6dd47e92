/* A text stream gives out text as soon as later tokens can no longer change that text, and ends at
 * stop strings. */
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

static tsr_status init_stream(const tsr_text_stream_params *p, tsr_text_stream *s)
{
    s->tokenizer = p->tokenizer;
    s->state = TSR_INIT(tsr_decode_state);
    s->state.control = p->control;
    s->invalid = p->invalid;
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
    for (size_t offset = s->of_prompt; offset < s->held_size; offset++)
        for (int i = 0; i < s->stop_count; i++)
            if (s->stops[i].size <= s->held_size - offset &&
                memcmp(s->held + offset, text_of(s, &s->stops[i]), s->stops[i].size) == 0)
                return offset;
    return SIZE_MAX;
}

/* Finds the longest suffix of the held bytes that is a prefix of a stop string, which later tokens
 * may complete. Returns the number of bytes before this suffix. */
static size_t size_before_stop(const tsr_text_stream *s)
{
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

/* Appends the bytes of a token to the held ones. */
static tsr_status hold(tsr_text_stream *s, int32_t id)
{
    const char *bytes = NULL;
    size_t size = 0;
    tsr_decode_state state = s->state;
    TSR__REQUIRE(!s->ended, "text stream: token %d comes after the end of the text", (int)id);
    TSR__TRY(tsr_tokenizer_decode_next(s->tokenizer, &state, id, &bytes, &size));
    TSR__TRY(need_room(s, s->held_size + size));
    s->state = state;
    if (size > 0)
        memcpy(s->held + s->held_size, bytes, size);
    s->held_size += size;
    return TSR_OK;
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
    TSR__TRY(hold(s, id));
    s->of_prompt = s->held_size;
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
    TSR__TRY(hold(s, id));
    s->has_generated = true;
    const size_t found = find_stop(s);
    s->ended = found != SIZE_MAX;
    *stopped = s->ended;
    if (s->ended)
        s->held_size = found;
    give_out_held(s, s->ended ? found : complete_size(s->held, size_before_stop(s)), text,
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
    give_out_held(s, s->held_size, text, size_bytes);
    return TSR_OK;
}
