#include "tokenizer/normalize.h"

#include <string.h>
#include <utf8proc.h>

#include "base/alloc.h"
#include "tokenizer/unicode.h"

void tsr__normalizer_finish(tsr__normalizer *normalizer)
{
    tsr__free(normalizer->steps);
    tsr__free(normalizer->strings.data);
    *normalizer = (tsr__normalizer){0};
}

tsr_status tsr__normalizer_add(tsr__normalizer *normalizer, tsr__normal_kind kind, const char *from,
                               size_t from_size, const char *to, size_t to_size)
{
    void *steps = normalizer->steps;
    TSR__TRY(
        tsr__grow(&steps, &normalizer->capacity, normalizer->count + 1, sizeof *normalizer->steps));
    normalizer->steps = steps;
    tsr__normal_step step = {.kind = kind, .from_size = from_size, .to_size = to_size};
    TSR__TRY(tsr__strings_add(&normalizer->strings, from, from_size, &step.from));
    TSR__TRY(tsr__strings_add(&normalizer->strings, to, to_size, &step.to));
    normalizer->steps[normalizer->count++] = step;
    return TSR_OK;
}

tsr_status tsr__append(tsr__strings *to, const char *text, size_t size)
{
    void *data = to->data;
    TSR__REQUIRE(size <= UINT32_MAX - to->size,
                 "tokenizer: the normalised text is longer than %llu bytes",
                 (unsigned long long)UINT32_MAX);
    TSR__TRY(tsr__grow(&data, &to->capacity, to->size + size, 1));
    to->data = data;
    if (size > 0)
        memcpy(to->data + to->size, text, size);
    to->size += size;
    return TSR_OK;
}

/* Where a step of a normaliser writes its result. */
typedef struct output {
    tsr__strings *to;
    size_t limit;      /* the most bytes */
    size_t step, from; /* for the error: the number of the step, and the bytes of the text */
} output;

static tsr_status append_output(const output *out, const char *text, size_t size)
{
    TSR__REQUIRE(size <= out->limit - out->to->size,
                 "tokenizer: step %zu of the normaliser makes a text of %zu bytes longer than the "
                 "limit, of which %zu bytes are left",
                 out->step + 1, out->from, out->limit);
    return tsr__append(out->to, text, size);
}

/* Unicode's normal forms ----------------------------------------------------------------------- */

/* Sorts neighbouring combining characters by their combining class, which is not 0. Characters of
 * the same class keep their order. A counting sort is used because a hostile text may have millions
 * of them in a row. */
static tsr_status sort_marks(int32_t *codes, size_t count)
{
    size_t places[257] = {0};
    int32_t *sorted = tsr__calloc(count, sizeof *sorted);
    if (sorted == NULL)
        return TSR_ERR_NO_MEMORY;
    for (size_t i = 0; i < count; i++)
        places[(utf8proc_get_property(codes[i])->combining_class & 255) + 1]++;
    for (int c = 0; c < 256; c++)
        places[c + 1] += places[c];
    for (size_t i = 0; i < count; i++)
        sorted[places[utf8proc_get_property(codes[i])->combining_class & 255]++] = codes[i];
    memcpy(codes, sorted, count * sizeof *codes);
    tsr__free(sorted);
    return TSR_OK;
}

static tsr_status put_in_order(int32_t *codes, size_t count)
{
    for (size_t offset = 0; offset < count;) {
        size_t start = offset;
        while (offset < count && utf8proc_get_property(codes[offset])->combining_class != 0)
            offset++;
        if (offset - start > 1)
            TSR__TRY(sort_marks(codes + start, offset - start));
        offset += offset == start;
    }
    return TSR_OK;
}

/* The characters of a text after decomposition. */
typedef struct codes {
    int32_t *items;
    size_t count, capacity;
} codes;

static tsr_status decompose(codes *to, uint32_t code, utf8proc_option_t options)
{
    int32_t decomposed[32];
    int boundary = 0;
    utf8proc_ssize_t count =
        utf8proc_decompose_char((utf8proc_int32_t)code, decomposed, 32, options, &boundary);
    if (count < 0 || count > 32)
        return tsr__fail(TSR_ERR_INVALID, "tokenizer: U+%04X has no normal form: %s",
                         (unsigned)code, utf8proc_errmsg(count));
    void *items = to->items;
    TSR__TRY(tsr__grow(&items, &to->capacity, to->count + (size_t)count, sizeof *to->items));
    to->items = items;
    memcpy(to->items + to->count, decomposed, (size_t)count * sizeof *decomposed);
    to->count += (size_t)count;
    return TSR_OK;
}

/* Appends the normal form of text[size], which is valid UTF-8. */
static tsr_status append_form(const output *to, codes *work, const char *text, size_t size,
                              utf8proc_option_t options)
{
    uint32_t code;
    work->count = 0;
    for (size_t offset = 0; offset < size;) {
        offset += tsr__character(text + offset, size - offset, &code);
        TSR__TRY(decompose(work, code,
                           (utf8proc_option_t)((unsigned)options & ~(unsigned)UTF8PROC_COMPOSE)));
    }
    TSR__TRY(put_in_order(work->items, work->count));
    utf8proc_ssize_t count = (utf8proc_ssize_t)work->count;
    if (options & UTF8PROC_COMPOSE)
        count = utf8proc_normalize_utf32(work->items, count, options);
    for (utf8proc_ssize_t i = 0; i < count; i++) {
        utf8proc_uint8_t bytes[4];
        utf8proc_ssize_t length = utf8proc_encode_char(work->items[i], bytes);
        TSR__TRY(append_output(to, (const char *)bytes, (size_t)length));
    }
    return TSR_OK;
}

static bool is_ascii(const char *text, size_t size)
{
    unsigned char any = 0;
    for (size_t i = 0; i < size; i++)
        any |= (unsigned char)text[i];
    return any < 0x80;
}

static tsr_status append_normal_form(tsr__normal_kind kind, const char *text, size_t size,
                                     const output *to)
{
    codes work = {0};
    utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    tsr_status status = TSR_OK;
    if (is_ascii(text, size)) /* every normal form leaves ASCII as it is */
        return append_output(to, text, size);
    if (kind == TSR__NFC || kind == TSR__NFKC)
        options |= UTF8PROC_COMPOSE;
    if (kind == TSR__NFKC || kind == TSR__NFKD)
        options |= UTF8PROC_COMPAT;
    for (size_t offset = 0; offset < size && status == TSR_OK;) {
        size_t start = offset;
        uint32_t code = 0;
        while (offset < size) {
            size_t next = tsr__character(text + offset, size - offset, &code);
            if (code == TSR__NOT_UTF8)
                break;
            offset += next;
        }
        status = append_form(to, &work, text + start, offset - start, options);
        if (status == TSR_OK && offset < size)
            status = append_output(to, text + offset++, 1);
    }
    tsr__free(work.items);
    return status;
}

/* The steps ------------------------------------------------------------------------------------ */

static tsr_status append_replaced(const char *from, size_t from_size, const char *by,
                                  size_t by_size, const char *text, size_t size, const output *to)
{
    size_t copied = 0;
    for (size_t offset = 0; offset + from_size <= size;) {
        const char *next = memchr(text + offset, from[0], size - offset - from_size + 1);
        if (next == NULL)
            break;
        offset = (size_t)(next - text);
        if (memcmp(next, from, from_size) != 0) {
            offset++;
            continue;
        }
        TSR__TRY(append_output(to, text + copied, offset - copied));
        TSR__TRY(append_output(to, by, by_size));
        copied = offset += from_size;
    }
    return append_output(to, text + copied, size - copied);
}

static tsr_status apply_step(const tsr__normalizer *normalizer, const tsr__normal_step *step,
                             const char *text, size_t size, bool first, const output *to)
{
    const char *by = normalizer->strings.data + step->to;
    bool only_first = step->kind == TSR__PREPEND_FIRST_NEW;
    bool only_new = step->kind == TSR__PREPEND_NEW || only_first;
    switch (step->kind) {
    case TSR__REPLACE:
        return append_replaced(normalizer->strings.data + step->from, step->from_size, by,
                               step->to_size, text, size, to);
    case TSR__NFC:
    case TSR__NFD:
    case TSR__NFKC:
    case TSR__NFKD:
        return append_normal_form(step->kind, text, size, to);
    default:
        break;
    }
    bool has_it = size >= step->to_size && memcmp(text, by, step->to_size) == 0;
    if (size > 0 && (first || !only_first) && !(only_new && has_it))
        TSR__TRY(append_output(to, by, step->to_size));
    return append_output(to, text, size);
}

size_t tsr__normal_limit(size_t size)
{
    const size_t growth = 64, more = 4096;
    return size <= (SIZE_MAX - more) / growth ? size * growth + more : SIZE_MAX;
}

tsr_status tsr__normalize(const tsr__normalizer *normalizer, const char *text, size_t size,
                          bool first, size_t *left, tsr__strings *result, tsr__strings *other)
{
    result->size = 0;
    TSR__TRY(tsr__append(result, text, size));
    for (size_t i = 0; i < normalizer->count; i++) {
        tsr__strings input = *result;
        output out = {
            .to = other, .limit = left != NULL ? *left : SIZE_MAX, .step = i, .from = size};
        other->size = 0;
        tsr_status status =
            apply_step(normalizer, &normalizer->steps[i], input.data, input.size, first, &out);
        *result = *other;
        *other = input;
        TSR__TRY(status);
    }
    if (left != NULL)
        *left -= result->size < *left ? result->size : *left;
    return TSR_OK;
}
