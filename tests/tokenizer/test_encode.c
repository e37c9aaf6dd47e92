/* Tests encoding and decoding: compares them with a naive implementation, and tests long texts,
 * random texts and every kind of wrong argument. */
#include "tokenizer/tokenizer_read.h"

#include <stdio.h>

#include "base/fault.h"
#include "support/golden.h"
#include "tokenizer/cases.h"
#include "tokenizer/info.h"
#include "tokenizer/normalize.h"

static tsr_tokenizer *open_tokenizer(const char *name)
{
    char path[512];
    tsr_tokenizer *tokenizer = NULL;
    snprintf(path, sizeof path, "%s/tokenizer/%s", TEST_DATA, name);
    ck_assert_ok(tsr_tokenizer_open(path, &tokenizer));
    return tokenizer;
}

static tsr_tokenizer *read_text(const char *json)
{
    tsr_tokenizer *tokenizer = tsr__tokenizer_create();
    ck_assert_ptr_nonnull(tokenizer);
    ck_assert_ok(tsr__tokenizer_read_json(json, strlen(json), NULL, 0, tokenizer));
    return tokenizer;
}

/* Merges of byte-pair encoding ----------------------------------------------------------------- */

/* Applies the definition: as long as the symbols contain a pair of the list, merges the leftmost of
 * the pairs with the lowest rank. */
static size_t merge_naively(const int (*merges)[3], size_t merge_count, int *symbols, size_t count)
{
    for (size_t rank = 0; rank < merge_count;) {
        size_t at = 0;
        while (at + 1 < count &&
               !(symbols[at] == merges[rank][0] && symbols[at + 1] == merges[rank][1]))
            at++;
        if (at + 1 >= count) {
            rank++;
            continue;
        }
        symbols[at] = merges[rank][2];
        memmove(symbols + at + 1, symbols + at + 2, (count - at - 2) * sizeof *symbols);
        count--;
        rank = 0;
    }
    return count;
}

/* Tests random lists of merges over the letters a, b and c. */
START_TEST(merging_follows_the_definition)
{
    uint64_t state = 1;
    for (int round = 0; round < 200; round++) {
        enum { LETTERS = 3, MERGES = 12, LENGTH = 40 };
        char spellings[LETTERS + MERGES][64] = {"a", "b", "c"};
        int merges[MERGES][3];
        size_t count = 0, tokens = LETTERS;
        tsr__vocabulary vocabulary = {0};
        tsr__merges list = {0};
        for (int i = 0; i < LETTERS; i++)
            ck_assert_ok(
                tsr__vocabulary_add(&vocabulary, (uint64_t)i, spellings[i], 1, TSR__TOKEN_NORMAL));
        for (int tries = 0; tries < 40 && count < MERGES; tries++) {
            state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
            size_t left = (size_t)(state >> 33) % tokens, right = (size_t)(state >> 40) % tokens;
            char merged[130];
            snprintf(merged, sizeof merged, "%s%s", spellings[left], spellings[right]);
            bool is_new = strlen(merged) < sizeof spellings[0];
            for (size_t t = 0; t < tokens; t++)
                is_new = is_new && strcmp(spellings[t], merged) != 0;
            if (!is_new)
                continue;
            snprintf(spellings[tokens], sizeof spellings[0], "%.63s", merged);
            ck_assert_ok(tsr__vocabulary_add(&vocabulary, tokens, merged, strlen(merged),
                                             TSR__TOKEN_NORMAL));
            merges[count][0] = (int)left;
            merges[count][1] = (int)right;
            merges[count++][2] = (int)tokens++;
            ck_assert_ok(
                tsr__merges_add(&list, (int32_t)left, (int32_t)right, (int32_t)tokens - 1));
        }
        ck_assert_ok(tsr__vocabulary_index(&vocabulary));
        ck_assert_ok(tsr__merges_sort(&list, tokens, false));
        for (int text_round = 0; text_round < 20; text_round++) {
            char text[LENGTH];
            int symbols[LENGTH];
            tsr__merge_work work = {0};
            for (size_t i = 0; i < LENGTH; i++) {
                state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
                symbols[i] = (int)((state >> 33) % LETTERS);
                text[i] = (char)('a' + symbols[i]);
                ck_assert_ok(tsr__merge_symbol(&work, i, 1, symbols[i]));
            }
            ck_assert_ok(tsr__merge(&list, &vocabulary, text, &work));
            size_t wanted = merge_naively((const int(*)[3])merges, count, symbols, LENGTH);
            size_t got = 0;
            for (size_t i = 0; i < work.count; i++)
                if (work.symbols[i].size > 0) {
                    ck_assert_uint_lt(got, wanted);
                    ck_assert_int_eq(work.symbols[i].id, symbols[got]);
                    got++;
                }
            ck_assert_uint_eq(got, wanted);
            tsr__merge_work_finish(&work);
        }
        tsr__merges_finish(&list);
        tsr__vocabulary_finish(&vocabulary);
    }
}
END_TEST

START_TEST(a_merge_that_comes_twice_keeps_one_rank)
{
    for (int last = 0; last < 2; last++) {
        tsr__merges list = {0};
        ck_assert_ok(tsr__merges_add(&list, 0, 1, 2));
        ck_assert_ok(tsr__merges_add(&list, 1, 0, 3));
        ck_assert_ok(tsr__merges_add(&list, 0, 1, 2));
        ck_assert_ok(tsr__merges_sort(&list, 4, last));
        ck_assert_uint_eq(list.count, 2);
        ck_assert_uint_eq(list.pairs[0].rank, last ? 2 : 0);
        ck_assert_uint_eq(list.pairs[1].rank, 1);
        tsr__merges_finish(&list);
    }
}
END_TEST

/* Long texts ----------------------------------------------------------------------------------- */

static const char *const vocabularies[] = {"stories260K-vocab.gguf", "ggml-vocab-gpt-2.gguf",
                                           "mini-llama3.tokenizer.json"};

/* A megabyte of any text is unchanged after encoding and decoding. If the time were quadratic, this
 * would take hours. */
START_TEST(a_megabyte_comes_back)
{
    enum { SIZE = 1000000 };
    tsr_tokenizer *tokenizer = open_tokenizer(vocabularies[_i / 5]);
    octets text = {.data = malloc(SIZE), .size = SIZE};
    uint64_t state = 5;
    ck_assert_ptr_nonnull(text.data);
    for (size_t i = 0; i < SIZE; i++) {
        static const char words[] = "once upon a time, there was a little girl. ";
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
        const char kinds[] = {'a', ' ', (char)(state >> 56), i % 2 ? (char)0x80 : (char)0xcc,
                              words[(i + (state >> 60 == 0)) % (sizeof words - 1)]};
        text.data[i] = kinds[_i % 5];
    }
    int32_t *ids = NULL;
    uint64_t count = 0;
    ck_assert_ok(tsr_tokenizer_encode(tokenizer, text.data, text.size, NULL, &ids, &count));
    ck_assert(cases_decodes(tokenizer, "a megabyte", ids, count, TSR_DECODE_CONTROL_SKIP, &text));
    tsr_tokenizer_free_ids(&ids);
    free(text.data);
    tsr_tokenizer_close(&tokenizer);
}
END_TEST

/* Added tokens --------------------------------------------------------------------------------- */

#define MODEL                                                                                      \
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"a\":1,\"b\":2,\" \":3,"  \
    "\"<\":4,\">\":5,\"ab\":6,\"\\u00e9\":7,\"e\":8,\"\\u0301\":9},\"merges\":[\"a b\"]},"         \
    "\"decoder\":{\"type\":\"Fuse\"}"
#define TOKEN(id, text, more) "{\"id\":" id ",\"content\":\"" text "\",\"special\":true" more "}"

static void has_ids(const tsr_tokenizer *tokenizer, const char *text, const int32_t *ids,
                    size_t count)
{
    octets in = {.data = strdup(text), .size = strlen(text)};
    ck_assert_ptr_nonnull(in.data);
    ck_assert(cases_encodes(tokenizer, text, &in,
                            tsr_encode_params(.control = TSR_ENCODE_CONTROL_TOKEN), ids, count));
    free(in.data);
}
#define HAS_IDS(tokenizer, text, ...)                                                              \
    has_ids(tokenizer, text, (const int32_t[]){__VA_ARGS__},                                       \
            sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

START_TEST(the_first_and_longest_added_token_is_found)
{
    tsr_tokenizer *tokenizer =
        read_text("{" MODEL ",\"added_tokens\":[" TOKEN("10", "<a", "") "," TOKEN(
            "11", "<ab>", "") "," TOKEN("12", "ab><", "") "," TOKEN("4", "<", "") "]}");
    HAS_IDS(tokenizer, "<ab>", 11);
    HAS_IDS(tokenizer, "<ab", 10, 2);
    HAS_IDS(tokenizer, "a<ab><a", 1, 11, 10);
    HAS_IDS(tokenizer, "ab><ab>", 12, 6, 5);
    HAS_IDS(tokenizer, "<<b", 4, 4, 2);
    HAS_IDS(tokenizer, "b", 2);
    /* In a plain text, control tokens are not recognised, but merged from their letters. */
    const octets text = {.data = (char[]){"<ab>"}, .size = 4};
    ck_assert(cases_encodes(tokenizer, "text", &text, NULL, (const int32_t[]){4, 6, 5}, 3));
    ck_assert(is_control(tokenizer, 11));
    ck_assert(!is_control(tokenizer, 6));
    ck_assert(!is_control(tokenizer, -1));
    ck_assert(!is_control(tokenizer, 14));
    tsr_tokenizer_close(&tokenizer);
}
END_TEST

START_TEST(added_tokens_may_take_the_spaces_beside_them)
{
    tsr_tokenizer *tokenizer =
        read_text("{" MODEL ",\"added_tokens\":[" TOKEN("10", "<l>", ",\"lstrip\":true") "," TOKEN(
            "11", "<r>", ",\"rstrip\":true") "," TOKEN("12", "word", ",\"single_word\":true") "]}");
    HAS_IDS(tokenizer, "a  <l> b", 1, 10, 3, 2);
    HAS_IDS(tokenizer, "a <r> \xe3\x80\x80 b", 1, 3, 11, 2);
    HAS_IDS(tokenizer, "<r> <l>", 11, 10);
    HAS_IDS(tokenizer, " <l>", 10);
    HAS_IDS(tokenizer, "word word", 12, 3, 12);
    HAS_IDS(tokenizer, "aword", 1, 0, 0, 0, 0);
    HAS_IDS(tokenizer, "worda", 0, 0, 0, 0, 1);
    HAS_IDS(tokenizer, "word\xcc\x81", 0, 0, 0, 0, 9);
    HAS_IDS(tokenizer, "<word>", 4, 12, 5);
    HAS_IDS(tokenizer, "\xffword\xff", 0, 12, 0);
    tsr_tokenizer_close(&tokenizer);
}
END_TEST

START_TEST(unknown_characters_are_fused_on_request)
{
    tsr_tokenizer *tokenizer = read_text("{" MODEL "}");
    HAS_IDS(tokenizer, "axyb\xe4\xb8\x80", 1, 0, 0, 2, 0);
    tsr_tokenizer_close(&tokenizer);
    static const char json[] =
        "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"fuse_unk\":true,\"byte_fallback\":true,"
        "\"vocab\":{\"?\":0,\"a\":1,\"b\":2,\"<0xC3>\":3,\"<0xA9>\":4},\"merges\":[]},"
        "\"decoder\":{\"type\":\"ByteFallback\"}}";
    tokenizer = read_text(json);
    HAS_IDS(tokenizer, "axyb\xe4\xb8\x80", 1, 0, 2, 0);
    HAS_IDS(tokenizer, "a\xc3\xa9\xc3\xa8", 1, 3, 4, 0);
    ck_assert_int_eq(info_of(tokenizer).unknown, 0);
    tsr_tokenizer_close(&tokenizer);
    /* If fuse_unk is true, unknown bytes of a word become one "?". This token is not fused with
     * that of a "?" in the text. */
#define BYTES_FUSED(fuses)                                                                         \
    "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"fuse_unk\":" fuses                         \
    ",\"vocab\":{\"?\":0,\"a\":1},\"merges\":[]},\"pre_tokenizer\":{\"type\":\"ByteLevel\","       \
    "\"add_prefix_space\":false},\"decoder\":{\"type\":\"ByteLevel\"}}"
    tokenizer = read_text(BYTES_FUSED("true"));
    HAS_IDS(tokenizer, "axya\xc3\xa9", 1, 0, 1, 0);
    HAS_IDS(tokenizer, "xy?!", 0, 0, 0); /* two words: "xy", "?!" */
    tsr_tokenizer_close(&tokenizer);
    tokenizer = read_text(BYTES_FUSED("false"));
    HAS_IDS(tokenizer, "axya\xc3\xa9", 1, 0, 0, 1, 0, 0);
    tsr_tokenizer_close(&tokenizer);
}
END_TEST

/* Normalisers ---------------------------------------------------------------------------------- */

static void normalizes(tsr__normal_kind kind, const char *from, const char *to)
{
    tsr__normalizer normalizer = {0};
    tsr__strings result = {0}, other = {0};
    ck_assert_ok(tsr__normalizer_add(&normalizer, kind, "", 0, "", 0));
    ck_assert_ok(tsr__normalize(&normalizer, from, strlen(from), true, NULL, &result, &other));
    ck_assert_msg(result.size == strlen(to) &&
                      (result.size == 0 || memcmp(result.data, to, result.size) == 0),
                  "'%s' becomes '%.*s', not '%s'", from, (int)result.size, result.data, to);
    free(result.data);
    free(other.data);
    tsr__normalizer_finish(&normalizer);
}

START_TEST(normal_forms_are_those_of_unicode)
{
    /* The examples of Unicode Standard Annex 15, and marks in the wrong order. */
    normalizes(TSR__NFC, "e\xcc\x81", "\xc3\xa9");
    normalizes(TSR__NFD, "\xc3\xa9", "e\xcc\x81");
    normalizes(TSR__NFC, "\xe1\xba\x9b\xcc\xa3", "\xe1\xba\x9b\xcc\xa3");
    normalizes(TSR__NFD, "\xe1\xba\x9b\xcc\xa3", "\xc5\xbf\xcc\xa3\xcc\x87");
    normalizes(TSR__NFKC, "\xe1\xba\x9b\xcc\xa3", "\xe1\xb9\xa9");
    normalizes(TSR__NFKD, "\xe1\xba\x9b\xcc\xa3", "s\xcc\xa3\xcc\x87");
    normalizes(TSR__NFKC, "\xef\xac\x81", "fi");
    normalizes(TSR__NFC, "\xef\xac\x81", "\xef\xac\x81");
    normalizes(TSR__NFC, "\xe2\x84\xab", "\xc3\x85");                 /* the Angstrom sign */
    normalizes(TSR__NFC, "\xe1\x84\x80\xe1\x85\xa1", "\xea\xb0\x80"); /* Hangul */
    normalizes(TSR__NFC, "a\xcc\x87\xcc\xa3", "\xe1\xba\xa1\xcc\x87");
    normalizes(TSR__NFC, "abc", "abc");
    normalizes(TSR__NFC, "", "");
    /* Bytes that are not UTF-8 stay unchanged, and nothing composes across them. */
    normalizes(TSR__NFC, "e\xff\xcc\x81 e\xcc\x81\xc3", "e\xff\xcc\x81 \xc3\xa9\xc3");
}
END_TEST

START_TEST(a_million_marks_are_put_in_order)
{
    enum { PAIRS = 250000 };
    tsr__normalizer normalizer = {0};
    tsr__strings text = {0}, result = {0}, other = {0};
    ck_assert_ok(tsr__normalizer_add(&normalizer, TSR__NFD, "", 0, "", 0));
    for (int i = 0; i < PAIRS; i++) /* marks of the combining classes 230 and 220 */
        ck_assert_ok(tsr__append(&text, "\xcc\x81\xcc\xa3", 4));
    ck_assert_ok(tsr__normalize(&normalizer, text.data, text.size, true, NULL, &result, &other));
    ck_assert_uint_eq(result.size, text.size);
    for (size_t i = 0; i < result.size; i += 2)
        ck_assert_int_eq(result.data[i + 1],
                         (char)(i < 2 * (size_t)PAIRS ? (unsigned char)0xa3 : (unsigned char)0x81));
    free(text.data);
    free(result.data);
    free(other.data);
    tsr__normalizer_finish(&normalizer);
}
END_TEST

START_TEST(a_text_is_normalised_between_added_tokens)
{
    tsr_tokenizer *tokenizer =
        read_text("{" MODEL ",\"normalizer\":{\"type\":\"NFC\"},\"added_tokens\":[" TOKEN(
            "10", "<e\xcc\x81>", ",\"normalized\":true") "," TOKEN("11", "e\xcc\x81!", "") "]}");
    HAS_IDS(tokenizer, "e\xcc\x81", 7);
    HAS_IDS(tokenizer, "<\xc3\xa9>", 10);
    HAS_IDS(tokenizer, "<e\xcc\x81>", 10);
    HAS_IDS(tokenizer, "e\xcc\x81!", 11);
    HAS_IDS(tokenizer, "\xc3\xa9!", 7, 0);
    tsr_tokenizer_close(&tokenizer);
}
END_TEST

/* Each of the steps makes a text 8 times as long. */
START_TEST(normalisers_cannot_multiply_a_text_without_a_limit)
{
#define EIGHT "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aaaaaaaa\"}"
#define MULTIPLIED(steps, added)                                                                   \
    "{" MODEL ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[" steps                     \
    "]},\"added_tokens\":[" TOKEN("10", "<x>", ",\"normalized\":false") added "]}"
    enum { PARTS = 90 };
    char text[PARTS * 4 + 101];
    int32_t *ids = NULL;
    uint64_t count = 0;
    memset(text, 'a', 100);
    tsr_tokenizer *tokenizer = read_text(MULTIPLIED(EIGHT "," EIGHT, ""));
    ck_assert_ok(tsr_tokenizer_encode(tokenizer, text, 100, NULL, &ids, &count));
    ck_assert_uint_eq(count, 6400);
    tsr_tokenizer_free_ids(&ids);
    tsr_tokenizer_close(&tokenizer);
    tokenizer = read_text(MULTIPLIED(EIGHT "," EIGHT "," EIGHT, ""));
    ck_assert_error(tsr_tokenizer_encode(tokenizer, text, 100, NULL, &ids, &count), TSR_ERR_INVALID,
                    "tokenizer: step 3 of the normaliser makes a text of 100 bytes longer than the "
                    "limit, of which 10496 bytes are left");
    /* All parts of a text share one limit of the normaliser: 27136 bytes for a text of 360
     * bytes. Each part uses 512 of them. */
    for (int i = 0; i < PARTS * 4; i++)
        text[i] = "a<x>"[i % 4];
    ck_assert_error(tsr_tokenizer_encode(tokenizer, text, PARTS * 4,
                                         tsr_encode_params(.control = TSR_ENCODE_CONTROL_TOKEN),
                                         &ids, &count),
                    TSR_ERR_INVALID,
                    "tokenizer: step 1 of the normaliser makes a text of 1 bytes longer than the "
                    "limit, of which 0 bytes are left");
    tsr_tokenizer_close(&tokenizer);
}
END_TEST

/* Metaspace and ByteLevel may add a space before the text. */
START_TEST(spaces_are_added_once)
{
#define SPACED(scheme)                                                                             \
    "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"\\u2581\":0,\"a\":1,\"\\u2581a\":2,\"<x>\":3},"     \
    "\"merges\":[\"\\u2581 a\"]},\"added_tokens\":[" TOKEN(                                        \
        "3", "<x>", "") "],\"pre_tokenizer\":"                                                     \
                        "{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\"," scheme              \
                        "},\"decoder\":{\"type\":"                                                 \
                        "\"Metaspace\",\"replacement\":\"\\u2581\"," scheme "}}"
    tsr_tokenizer *tokenizer = read_text(SPACED("\"prepend_scheme\":\"always\",\"split\":false"));
    HAS_IDS(tokenizer, "a a<x>a", 2, 2, 3, 2);
    HAS_IDS(tokenizer, " a", 2);
    tsr_tokenizer_close(&tokenizer);
    tokenizer = read_text(SPACED("\"prepend_scheme\":\"first\""));
    HAS_IDS(tokenizer, "a a<x>a", 2, 2, 3, 1);
    HAS_IDS(tokenizer, "<x>a", 3, 1);
    tsr_tokenizer_close(&tokenizer);
    tokenizer = read_text(SPACED("\"add_prefix_space\":false"));
    HAS_IDS(tokenizer, "a a", 1, 2);
    ck_assert(cases_decodes(tokenizer, "never", (const int32_t[]){2, 1}, 2, TSR_DECODE_CONTROL_SKIP,
                            &(octets){.data = (char[]){" aa"}, .size = 3}));
    tsr_tokenizer_close(&tokenizer);
    tokenizer = read_text(SPACED("\"add_prefix_space\":true"));
    HAS_IDS(tokenizer, "a a", 2, 2);
    ck_assert(cases_decodes(tokenizer, "always", (const int32_t[]){2, 1}, 2,
                            TSR_DECODE_CONTROL_SKIP, &(octets){.data = (char[]){"aa"}, .size = 2}));
    tsr_tokenizer_close(&tokenizer);
    static const char bytes[] =
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"\\u0120\":0,\"a\":1},\"merges\":[]},"
        "\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"decoder\":{\"type\":\"ByteLevel\"}}";
    tokenizer = read_text(bytes);
    HAS_IDS(tokenizer, "a a", 0, 1, 0, 1);
    HAS_IDS(tokenizer, " a", 0, 1);
    tsr_tokenizer_close(&tokenizer);
}
END_TEST

/* Decoding ------------------------------------------------------------------------------------- */

START_TEST(streaming_gives_the_text)
{
    tsr_tokenizer *tokenizer = open_tokenizer("stories260K-vocab.gguf");
    /* The ids are BOS, twice " The", EOS, " The", and the byte 0xff. Decoding leaves out the space
     * after BOS and after EOS. */
    static const int32_t ids[] = {1, 291, 291, 2, 291, 258};
    static const char *const skipped[] = {"", "The", " The", "", "The", "\xff"};
    static const char *const spelled[] = {"<s>", "The", " The", "</s>", "The", "\xff"};
    for (int spells = 0; spells < 2; spells++) {
        tsr_decode_state state = {.struct_size = sizeof state,
                                  .control =
                                      spells ? TSR_DECODE_CONTROL_SPELL : TSR_DECODE_CONTROL_SKIP};
        for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
            const char *bytes = NULL, *wanted = spells ? spelled[i] : skipped[i];
            size_t size = 0;
            ck_assert_ok(tsr_tokenizer_decode_next(tokenizer, &state, ids[i], &bytes, &size));
            ck_assert_uint_eq(size, strlen(wanted));
            ck_assert_mem_eq(bytes, wanted, size);
        }
    }
    tsr_tokenizer_close(&tokenizer);
}
END_TEST

START_TEST(wrong_arguments_are_refused)
{
    tsr_tokenizer *tokenizer = open_tokenizer("stories260K-vocab.gguf");
    tsr_decode_state state = TSR_INIT(tsr_decode_state);
    int32_t *ids = NULL, one[] = {291, 512};
    uint64_t count = 7;
    size_t size = 7;
    char text[8];
    const char *bytes = NULL;
    ck_assert_error(tsr_tokenizer_encode(NULL, "", 0, NULL, &ids, &count), TSR_ERR_INVALID,
                    "tokenizer: the tokenizer is NULL");
    ck_assert_error(tsr_tokenizer_encode(tokenizer, "", 0, NULL, NULL, &count), TSR_ERR_INVALID,
                    "tokenizer: ids is NULL");
    ck_assert_error(tsr_tokenizer_encode(tokenizer, "", 0, NULL, &ids, NULL), TSR_ERR_INVALID,
                    "tokenizer: count is NULL");
    ck_assert_error(tsr_tokenizer_encode(tokenizer, NULL, 3, NULL, &ids, &count), TSR_ERR_INVALID,
                    "tokenizer: text is NULL, but has 3 bytes");
    ck_assert_error(
        tsr_tokenizer_encode(tokenizer, "", (size_t)TSR_TOKENIZER_MAX_TEXT + 1, NULL, &ids, &count),
        TSR_ERR_INVALID,
        "tokenizer: a text of 1073741825 bytes is longer than the 1073741824 allowed");
    ck_assert_error(tsr_tokenizer_encode(tokenizer, "", 0,
                                         tsr_encode_params(.add = (tsr_encode_add)2), &ids, &count),
                    TSR_ERR_INVALID, "tokenizer: add is 2");
    ck_assert_error(tsr_tokenizer_encode(tokenizer, "", 0,
                                         tsr_encode_params(.control = (tsr_encode_control)2), &ids,
                                         &count),
                    TSR_ERR_INVALID, "tokenizer: control is 2");
    ck_assert_ptr_null(ids);
    ck_assert_uint_eq(count, 7);
    ck_assert_error(
        tsr_tokenizer_decode(tokenizer, one, 2, TSR_DECODE_CONTROL_SKIP, 8, text, &size),
        TSR_ERR_INVALID, "tokenizer: id 512 is out of range: ids are 0 to 511");
    ck_assert_error(tsr_tokenizer_decode(tokenizer, (int32_t[]){-1}, 1, TSR_DECODE_CONTROL_SKIP, 8,
                                         text, &size),
                    TSR_ERR_INVALID, "tokenizer: id -1 is out of range: ids are 0 to 511");
    ck_assert_error(
        tsr_tokenizer_decode(tokenizer, one, 1, TSR_DECODE_CONTROL_SKIP, 2, text, &size),
        TSR_ERR_INVALID, "tokenizer: the text has 3 bytes; there is room for 2");
    ck_assert_error(tsr_tokenizer_decode(tokenizer, one, 1, (tsr_decode_control)2, 8, text, &size),
                    TSR_ERR_INVALID, "tokenizer: control is 2");
    ck_assert_error(
        tsr_tokenizer_decode(tokenizer, NULL, 1, TSR_DECODE_CONTROL_SKIP, 8, text, &size),
        TSR_ERR_INVALID, "tokenizer: ids is NULL, but there are 1");
    ck_assert_error(tsr_tokenizer_decode(NULL, one, 1, TSR_DECODE_CONTROL_SKIP, 8, text, &size),
                    TSR_ERR_INVALID, "tokenizer: the tokenizer is NULL");
    ck_assert_error(tsr_tokenizer_decode(tokenizer, one, 1, TSR_DECODE_CONTROL_SKIP, 8, text, NULL),
                    TSR_ERR_INVALID, "tokenizer: size_bytes is NULL");
    ck_assert_uint_eq(size, 7);
    ck_assert_error(tsr_tokenizer_decode_next(tokenizer, NULL, 1, &bytes, &size), TSR_ERR_INVALID,
                    "tokenizer: state is NULL");
    ck_assert_error(tsr_tokenizer_decode_next(tokenizer, &state, 512, &bytes, &size),
                    TSR_ERR_INVALID, "tokenizer: id 512 is out of range: ids are 0 to 511");
    ck_assert_int_eq(state.place, 0);
    ck_assert_error(spelling_of(tokenizer, 512, &bytes, &size), TSR_ERR_INVALID,
                    "tokenizer: id 512 is out of range: ids are 0 to 511");
    ck_assert_error(tsr_tokenizer_get_token(tokenizer, 1, NULL), TSR_ERR_INVALID,
                    "tokenizer: out is NULL");
    ck_assert_ok(spelling_of(tokenizer, 291, &bytes, &size));
    ck_assert_str_eq(bytes, "▁The");
    ck_assert_uint_eq(size, 6);
    ck_assert_int_eq(tsr_tokenizer_find(tokenizer, "▁The", 6), 291);
    ck_assert_int_eq(tsr_tokenizer_find(tokenizer, "▁The", 5), -1);
    ck_assert_int_eq(tsr_tokenizer_find(tokenizer, NULL, 0), -1);
    tsr_tokenizer_free_ids(NULL);
    tsr_tokenizer_free_ids(&ids);
    tsr_tokenizer_close(&tokenizer);
}
END_TEST

START_TEST(no_tokenizer_has_no_properties)
{
    ck_assert_int_eq(tsr_tokenizer_size(NULL), 0);
    tsr_tokenizer_info info = TSR_INIT(tsr_tokenizer_info);
    tsr_token_info token = TSR_INIT(tsr_token_info);
    ck_assert_error(tsr_tokenizer_get_info(NULL, &info), TSR_ERR_INVALID,
                    "tokenizer: the tokenizer is NULL");
    ck_assert_error(tsr_tokenizer_get_token(NULL, 0, &token), TSR_ERR_INVALID,
                    "tokenizer: the tokenizer is NULL");
    ck_assert_int_eq(tsr_tokenizer_find(NULL, "a", 1), -1);
    ck_assert(!tsr_tokenizer_is_end(NULL, 0));
    ck_assert_str_eq(tsr_tokenizer_kind_name((tsr_tokenizer_kind)3), "?");
    ck_assert_str_eq(tsr_tokenizer_kind_name(TSR_TOKENIZER_BPE), "bpe");
}
END_TEST

START_TEST(special_ids_are_known)
{
    tsr_tokenizer *tokenizer = open_tokenizer("mini-llama3.tokenizer.json");
    ck_assert_int_eq(info_of(tokenizer).bos, 1756);
    ck_assert_int_eq(info_of(tokenizer).eos, -1);     /* this file has no configuration */
    ck_assert(tsr_tokenizer_is_end(tokenizer, 1758)); /* <|eot_id|> */
    ck_assert(tsr_tokenizer_is_end(tokenizer, 1757)); /* <|end_of_text|> */
    ck_assert(!tsr_tokenizer_is_end(tokenizer, 1756));
    tsr_tokenizer_close(&tokenizer);
    tokenizer = open_tokenizer("TinyStories-656K.tokenizer.json");
    ck_assert_int_eq(info_of(tokenizer).bos, 1);
    ck_assert_int_eq(info_of(tokenizer).eos, 2);
    ck_assert_int_eq(info_of(tokenizer).unknown, 0);
    ck_assert(tsr_tokenizer_is_end(tokenizer, 2));
    tsr_tokenizer_close(&tokenizer);
    tokenizer = open_tokenizer("stories260K-vocab.gguf");
    ck_assert(tsr_tokenizer_is_end(tokenizer, 2));
    ck_assert(is_control(tokenizer, 0));
    ck_assert(is_control(tokenizer, 1));
    ck_assert(!is_control(tokenizer, 3));
    tsr_tokenizer_close(&tokenizer);
}
END_TEST

START_TEST(encoding_without_memory_leaks_nothing)
{
    static const char text[] = "Once upon a time, \xff there\n\n <s> was 1234";
    tsr_tokenizer *tokenizer = open_tokenizer(vocabularies[_i]);
    for (uint64_t nth = 0;; nth++) {
        int32_t *ids = NULL;
        uint64_t count = 0;
        tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
        tsr_status status =
            tsr_tokenizer_encode(tokenizer, text, sizeof text - 1, NULL, &ids, &count);
        bool reached = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        ck_assert_int_eq(status, reached ? TSR_ERR_NO_MEMORY : TSR_OK);
        ck_assert(reached == (ids == NULL));
        tsr_tokenizer_free_ids(&ids);
        if (!reached)
            break;
        ck_assert_uint_lt(nth, 1000);
    }
    tsr_tokenizer_close(&tokenizer);
}
END_TEST

TESTS(encode)
{
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, merging_follows_the_definition);
    tcase_add_test(tests, a_merge_that_comes_twice_keeps_one_rank);
    tcase_add_loop_test(tests, a_megabyte_comes_back, 0, 15);
    tcase_add_test(tests, the_first_and_longest_added_token_is_found);
    tcase_add_test(tests, added_tokens_may_take_the_spaces_beside_them);
    tcase_add_test(tests, unknown_characters_are_fused_on_request);
    tcase_add_test(tests, normal_forms_are_those_of_unicode);
    tcase_add_test(tests, a_million_marks_are_put_in_order);
    tcase_add_test(tests, a_text_is_normalised_between_added_tokens);
    tcase_add_test(tests, normalisers_cannot_multiply_a_text_without_a_limit);
    tcase_add_test(tests, spaces_are_added_once);
    tcase_add_test(tests, streaming_gives_the_text);
    tcase_add_test(tests, wrong_arguments_are_refused);
    tcase_add_test(tests, no_tokenizer_has_no_properties);
    tcase_add_test(tests, special_ids_are_known);
    tcase_add_loop_test(tests, encoding_without_memory_leaks_nothing, 0, 3);
}
