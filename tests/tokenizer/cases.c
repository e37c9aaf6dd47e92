#include "tokenizer/cases.h"
#include "tokenizer/info.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *need(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "out of memory\n");
        abort();
    }
    return memory;
}

octets cases_base64(const char *text)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    octets out = {.data = need(malloc(strlen(text) + 1))};
    uint32_t bits = 0;
    int count = 0;
    for (; *text != '\0' && *text != '='; text++) {
        const char *digit = strchr(digits, *text);
        if (digit == NULL) {
            fprintf(stderr, "'%c' is no base64\n", *text);
            abort();
        }
        bits = bits << 6 | (uint32_t)(digit - digits);
        count += 6;
        if (count >= 8) {
            count -= 8;
            out.data[out.size++] = (char)(bits >> count & 0xff);
        }
    }
    return out;
}

static void print_ids(const char *what, const int32_t *ids, size_t count)
{
    printf("#   %s:", what);
    for (size_t i = 0; i < count && i < 64; i++)
        printf(" %" PRId32, ids[i]);
    printf("%s\n", count > 64 ? " …" : "");
}

static void print_text(const char *what, const char *text, size_t size)
{
    printf("#   %s: ", what);
    for (size_t i = 0; i < size && i < 200; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte < 0x20 || byte == 0x7f)
            printf("\\x%02x", byte);
        else
            putchar(byte);
    }
    printf("%s\n", size > 200 ? " …" : "");
}

int cases_encodes(const tsr_tokenizer *tokenizer, const char *name, const octets *text,
                  const tsr_encode_params *params, const int32_t *wanted, size_t count)
{
    int32_t *ids = NULL;
    uint64_t got = 0;
    if (tsr_tokenizer_encode(tokenizer, text->data, text->size, params, &ids, &got) != TSR_OK) {
        printf("# %s: %s\n", name, tsr_last_error());
        return 0;
    }
    int same = got == count && (count == 0 || memcmp(ids, wanted, count * sizeof *ids) == 0);
    if (!same) {
        printf("# %s: the ids differ\n", name);
        print_text("text", text->data, text->size);
        print_ids("wanted", wanted, count);
        print_ids("got", ids, got);
    }
    tsr_tokenizer_free_ids(&ids);
    return same;
}

int cases_decodes(const tsr_tokenizer *tokenizer, const char *name, const int32_t *ids,
                  size_t count, tsr_decode_control control, const octets *wanted)
{
    size_t size = 0;
    char *text = NULL;
    tsr_status status = tsr_tokenizer_decode(tokenizer, ids, count, control, 0, NULL, &size);
    if (status == TSR_OK) {
        text = need(malloc(size + 1));
        status = tsr_tokenizer_decode(tokenizer, ids, count, control, size, text, &size);
    }
    int same = status == TSR_OK && size == wanted->size &&
               (size == 0 || memcmp(text, wanted->data, size) == 0);
    if (!same) {
        printf("# %s: the text differs (%s)\n", name, status == TSR_OK ? "" : tsr_last_error());
        print_text("wanted", wanted->data, wanted->size);
        print_text("got", text != NULL ? text : "", status == TSR_OK ? size : 0);
    }
    free(text);
    return same;
}

static int32_t *ids_of(const json_t *list, size_t *count)
{
    *count = json_array_size(list);
    int32_t *ids = need(calloc(*count + 1, sizeof *ids));
    for (size_t i = 0; i < *count; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    return ids;
}

static octets bytes_of(const json_t *one, const char *name)
{
    return cases_base64(json_string_value(json_object_get(one, name)));
}

static int check_ids(const tsr_tokenizer *tokenizer, const char *name, const octets *text,
                     const tsr_encode_params *params, const json_t *list)
{
    size_t count;
    int32_t *ids = ids_of(list, &count);
    int same = cases_encodes(tokenizer, name, text, params, ids, count);
    free(ids);
    return same;
}

static int check_text(const tsr_tokenizer *tokenizer, const char *name, const json_t *list,
                      tsr_decode_control control, const octets *wanted)
{
    size_t count;
    int32_t *ids = ids_of(list, &count);
    int same = cases_decodes(tokenizer, name, ids, count, control, wanted);
    free(ids);
    return same;
}

/* Returns whether a byte-level vocabulary has a token for a byte from 0xC0 on. Some vocabularies
 * have none for bytes that start rare characters, or that valid UTF-8 never has; these bytes become
 * U+FFFD. */
static bool has_byte(const tsr_tokenizer *tokenizer, unsigned char byte)
{
    /* Byte-level vocabularies spell these bytes as the characters U+00C0 to U+00FF. */
    const char spelling[2] = {(char)0xc3, (char)(byte - 0x40)};
    const char *bytes;
    size_t size;
    tsr_decode_state state = TSR_INIT(tsr_decode_state);
    int32_t id = tsr_tokenizer_find(tokenizer, spelling, 2);
    return id >= 0 && tsr_tokenizer_decode_next(tokenizer, &state, id, &bytes, &size) == TSR_OK &&
           size == 1;
}

/* Returns what decoding must give for a text. */
static octets wanted_back(const tsr_tokenizer *tokenizer, const octets *text)
{
    bool is_byte_bpe = info_of(tokenizer).kind == TSR_TOKENIZER_BYTE_BPE;
    octets out = {.data = need(malloc(3 * text->size + 1))};
    for (size_t i = 0; i < text->size; i++) {
        unsigned char byte = (unsigned char)text->data[i];
        bool lost = is_byte_bpe && byte >= 0xc0 && !has_byte(tokenizer, byte);
        bool is_space = !is_byte_bpe && text->size - i >= 3 &&
                        memcmp(text->data + i, "\xe2\x96\x81", 3) == 0; /* "▁" is a space */
        memcpy(out.data + out.size,
               lost       ? "\xef\xbf\xbd"
               : is_space ? " "
                          : &text->data[i],
               lost ? 3 : 1);
        out.size += lost ? 3 : 1;
        i += is_space ? 2 : 0;
    }
    return out;
}

/* Returns whether the ids of a text decode to the text. */
static int comes_back(const tsr_tokenizer *tokenizer, const char *name, const octets *text,
                      const tsr_encode_params *params)
{
    int32_t *ids = NULL;
    uint64_t count = 0;
    if (tsr_tokenizer_encode(tokenizer, text->data, text->size, params, &ids, &count) != TSR_OK) {
        printf("# %s: %s\n", name, tsr_last_error());
        return 0;
    }
    octets wanted = wanted_back(tokenizer, text);
    int same = cases_decodes(tokenizer, name, ids, count,
                             params->control == TSR_ENCODE_CONTROL_TOKEN ? TSR_DECODE_CONTROL_SPELL
                                                                         : TSR_DECODE_CONTROL_SKIP,
                             &wanted);
    free(wanted.data);
    tsr_tokenizer_free_ids(&ids);
    return same;
}

/* Compares with outputs of llama.cpp. In byte-level vocabularies, llama.cpp replaces bytes that are
 * not UTF-8 by U+FFFD. For texts with such bytes, this function only checks that encoding and
 * decoding give the text back. */
static int check_llama(const tsr_tokenizer *tokenizer, const char *name, const json_t *one)
{
    const tsr_encode_params plain = {.struct_size = sizeof plain, .add = TSR_ENCODE_ADD_NONE};
    const tsr_encode_params full = {.struct_size = sizeof full,
                                    .control = TSR_ENCODE_CONTROL_TOKEN};
    const tsr_encode_params tokens = {.struct_size = sizeof tokens,
                                      .add = TSR_ENCODE_ADD_NONE,
                                      .control = TSR_ENCODE_CONTROL_TOKEN};
    const json_t *ids = json_object_get(one, "ids"),
                 *more = json_object_get(one, "ids_add1_parse1");
    octets text = bytes_of(one, "text_b64");
    int good = 1;
    if (json_is_true(json_object_get(one, "valid_utf8")) ||
        info_of(tokenizer).kind == TSR_TOKENIZER_SPM) {
        bool is_spm = info_of(tokenizer).kind == TSR_TOKENIZER_SPM;
        bool has_pieces = json_object_get(one, "pieces_b64") != NULL && !is_spm;
        octets decoded = bytes_of(one, has_pieces ? "pieces_b64" : "detok_b64");
        good &= check_ids(tokenizer, name, &text, &plain, ids);
        good &= check_ids(tokenizer, name, &text, &full, more != NULL ? more : ids);
        good &= check_text(tokenizer, name, ids, TSR_DECODE_CONTROL_SPELL, &decoded);
        free(decoded.data);
    }
    good &= comes_back(tokenizer, name, &text, &plain);
    good &= comes_back(tokenizer, name, &text, &tokens);
    free(text.data);
    return good;
}

/* Compares with outputs of Hugging Face's tokenizers, which always recognise control tokens in a
 * text. */
static int check_hugging_face(const tsr_tokenizer *tokenizer, const char *name, const json_t *one)
{
    const tsr_encode_params tokens = {.struct_size = sizeof tokens,
                                      .add = TSR_ENCODE_ADD_NONE,
                                      .control = TSR_ENCODE_CONTROL_TOKEN};
    const tsr_encode_params full = {.struct_size = sizeof full,
                                    .control = TSR_ENCODE_CONTROL_TOKEN};
    const json_t *ids = json_object_get(one, "ids"), *more = json_object_get(one, "ids_special");
    bool skips = json_object_get(one, "decoded_skip_special_b64") != NULL;
    octets text = bytes_of(one, "text_b64"), decoded = bytes_of(one, "decoded_b64");
    octets skipped = bytes_of(one, skips ? "decoded_skip_special_b64" : "decoded_b64");
    int good = check_ids(tokenizer, name, &text, &tokens, ids);
    good &= check_ids(tokenizer, name, &text, &full, more);
    good &= check_text(tokenizer, name, ids, TSR_DECODE_CONTROL_SPELL, &decoded);
    good &= check_text(tokenizer, name, more, TSR_DECODE_CONTROL_SKIP, &skipped);
    free(text.data);
    free(decoded.data);
    free(skipped.data);
    return good;
}

int cases_check(const tsr_tokenizer *tokenizer, const char *path, size_t *cases)
{
    json_error_t error;
    json_t *document = json_load_file(path, JSON_REJECT_DUPLICATES, &error), *one;
    size_t i;
    int failed = 0;
    if (document == NULL) {
        fprintf(stderr, "%s:%d: %s\n", path, error.line, error.text);
        abort();
    }
    json_array_foreach(json_object_get(document, "cases"), i, one)
    {
        const char *name = json_string_value(json_object_get(one, "name"));
        failed += json_object_get(one, "ids_special") != NULL
                      ? !check_hugging_face(tokenizer, name, one)
                      : !check_llama(tokenizer, name, one);
    }
    *cases = json_array_size(json_object_get(document, "cases"));
    json_decref(document);
    return failed;
}
