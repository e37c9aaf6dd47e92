/* Tests text streams: their text must be the decoded text of all tokens, cut at the first stop
 * string. How the tokens divide the text must make no difference. */
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "support/check_main.h"
#include "support/random.h"
#include "tessera/tokenizer.h"

static tsr_tokenizer *tokenizer;

static void open_tokenizer(void)
{
    ck_assert_ok(tsr_tokenizer_open(TEST_DATA "/tokenizer/stories260K-vocab.gguf", &tokenizer));
}

static void close_tokenizer(void)
{
    tsr_tokenizer_close(&tokenizer);
}

static tsr_text_stream *create(int count, const char *const *stops, tsr_text_invalid invalid)
{
    tsr_text_stream *stream = NULL;
    ck_assert_ok(
        tsr_text_stream_create(tsr_text_stream_params(.tokenizer = tokenizer, .stops = stops,
                                                      .stop_count = count, .invalid = invalid),
                               &stream));
    return stream;
}

/* Returns the id of the token that stands for a byte. */
static int32_t byte_token(unsigned char byte)
{
    char spelling[8];
    snprintf(spelling, sizeof spelling, "<0x%02X>", byte);
    const int32_t id = tsr_tokenizer_find(tokenizer, spelling, 6);
    ck_assert_int_ge(id, 0);
    return id;
}

/* Adds a byte as a generated token, and checks the text that the stream returns. */
static void adds(tsr_text_stream *stream, unsigned char byte, const char *wanted, bool stops)
{
    const char *text = NULL;
    size_t size = 99;
    bool stopped = !stops;
    ck_assert_ok(tsr_text_stream_add(stream, byte_token(byte), &text, &size, &stopped));
    ck_assert_str_eq(text, wanted);
    ck_assert_uint_eq(size, strlen(wanted));
    ck_assert_int_eq(stopped, stops);
}

static void ends(tsr_text_stream *stream, const char *wanted)
{
    const char *text = NULL;
    size_t size = 99;
    ck_assert_ok(tsr_text_stream_end(stream, &text, &size));
    ck_assert_str_eq(text, wanted);
    ck_assert_uint_eq(size, strlen(wanted));
    tsr_text_stream_destroy(&stream);
    ck_assert_ptr_null(stream);
}

START_TEST(without_stops_characters_are_complete)
{
    tsr_text_stream *stream = create(0, NULL, TSR_TEXT_INVALID_KEEP);
    adds(stream, 'a', "a", false);
    adds(stream, 0xe2, "", false);
    adds(stream, 0x82, "", false);
    adds(stream, 0xac, "\u20ac", false);
    adds(stream, 0xc3, "", false);
    adds(stream, 'b',
         "\xc3"
         "b",
         false);
    adds(stream, 0xf0, "", false);
    adds(stream, 0x9f, "", false);
    ends(stream, "\xf0\x9f");
}
END_TEST

START_TEST(invalid_bytes_are_replaced)
{
    tsr_text_stream *stream = create(0, NULL, TSR_TEXT_INVALID_REPLACE);
    adds(stream, 0x80, "\ufffd", false);
    adds(stream, 0xff, "\ufffd", false);
    adds(stream, 0xc3, "", false);
    adds(stream, 0xa9, "\u00e9", false);
    adds(stream, 0xe2, "", false);
    adds(stream, 0x82, "", false);
    adds(stream, '!', "\ufffd\ufffd!", false);
    adds(stream, 0xe2, "", false);
    ends(stream, "\ufffd");
}
END_TEST

START_TEST(a_stop_string_across_tokens)
{
    static const char *const stops[] = {"end", "no"};
    tsr_text_stream *stream = create(2, stops, TSR_TEXT_INVALID_KEEP);
    adds(stream, 'x', "x", false);
    adds(stream, 'e', "", false);
    adds(stream, 'n', "", false); /* also begins the other stop string */
    adds(stream, 'e', "en", false);
    adds(stream, 'n', "", false);
    adds(stream, 'd', "", true);
    const char *text;
    size_t size;
    bool stopped;
    ck_assert_error(tsr_text_stream_add(stream, byte_token('a'), &text, &size, &stopped),
                    TSR_ERR_INVALID, "text stream: token 100 comes after the end of the text");
    ends(stream, "");
}
END_TEST

START_TEST(the_first_stop_string_counts)
{
    static const char *const stops[] = {"bcd", "b"};
    tsr_text_stream *stream = create(2, stops, TSR_TEXT_INVALID_KEEP);
    adds(stream, 'a', "a", false);
    adds(stream, 'b', "", true);
    ends(stream, "");
    /* The stop string is a single byte in the middle of a character. */
    static const char *const inside[] = {"\x82"};
    stream = create(1, inside, TSR_TEXT_INVALID_REPLACE);
    adds(stream, 0xe2, "", false);
    adds(stream, 0x82, "\ufffd", true);
    ends(stream, "");
}
END_TEST

START_TEST(beginnings_of_stop_strings_come_at_the_end)
{
    static const char *const stops[] = {"abab!"};
    tsr_text_stream *stream = create(1, stops, TSR_TEXT_INVALID_KEEP);
    static const char *const wanted[] = {"", "", "", "", "ab", "", "ab"};
    for (int i = 0; i < 7; i++)
        adds(stream, i % 2 == 0 ? 'a' : 'b', wanted[i], false);
    ends(stream, "aba");
}
END_TEST

/* Stop strings are not searched for in the prompt, nor across its end. */
START_TEST(prompts_have_no_stops)
{
    static const char *const stops[] = {"ab"};
    tsr_text_stream *stream = create(1, stops, TSR_TEXT_INVALID_KEEP);
    const char *text;
    size_t size;
    static const unsigned char prompt[] = {'a', 'b', 'a', 0xc3};
    static const char *const wanted[] = {"a", "b", "a", ""};
    for (int i = 0; i < 4; i++) {
        ck_assert_ok(tsr_text_stream_add_prompt(stream, byte_token(prompt[i]), &text, &size));
        ck_assert_str_eq(text, wanted[i]);
    }
    adds(stream, 0xa9, "\u00e9", false);
    adds(stream, 'b', "b", false);
    ck_assert_error(tsr_text_stream_add_prompt(stream, byte_token('a'), &text, &size),
                    TSR_ERR_INVALID,
                    "text stream: token 100 of the prompt comes after generated ones");
    adds(stream, 'a', "", false);
    adds(stream, 'b', "", true);
    ends(stream, "");
}
END_TEST

/* Compares streams of random ids with decoding all ids and searching the result. */
START_TEST(any_ids)
{
    static const char *const all[] = {"th", "the ", "a", "\n", "e", " w", "lly", "\xc3", "zz"};
    uint64_t state = 5;
    for (int round = 0; round < 300; round++) {
        int32_t ids[40];
        const char *stops[3];
        char expected[1024], got[1024];
        size_t size = 0, used = 0, cut;
        const int stop_count = (int)(random_next(&state) % 4);
        bool stopped = false;
        for (int i = 0; i < 40; i++)
            ids[i] = (int32_t)(random_next(&state) % 512);
        for (int i = 0; i < stop_count; i++)
            stops[i] = all[random_next(&state) % 9];
        ck_assert_ok(tsr_tokenizer_decode(tokenizer, ids, 40, TSR_DECODE_CONTROL_SKIP,
                                          sizeof expected, expected, &size));
        cut = size;
        for (int i = 0; i < stop_count; i++)
            for (size_t at = 0; at + strlen(stops[i]) <= size; at++)
                if (memcmp(expected + at, stops[i], strlen(stops[i])) == 0 && at < cut)
                    cut = at;
        tsr_text_stream *stream = create(stop_count, stops, TSR_TEXT_INVALID_KEEP);
        const char *text;
        size_t length;
        for (int i = 0; i < 40 && !stopped; i++) {
            ck_assert_ok(tsr_text_stream_add(stream, ids[i], &text, &length, &stopped));
            memcpy(got + used, text, length);
            used += length;
            ck_assert_uint_le(used, cut);
        }
        ck_assert_int_eq(stopped, cut < size);
        ck_assert_ok(tsr_text_stream_end(stream, &text, &length));
        memcpy(got + used, text, length);
        used += length;
        ck_assert_uint_eq(used, cut);
        ck_assert_mem_eq(got, expected, cut);
        tsr_text_stream_destroy(&stream);
    }
}
END_TEST

START_TEST(mistakes)
{
    static char longer[TSR_TEXT_STREAM_MAX_STOP_BYTES + 2];
    const struct {
        tsr_text_stream_params params;
        const char *text;
    } cases[] = {
        {{.stop_count = -1}, "text stream: stop_count is -1; 0 to 1024 is possible"},
        {{.stop_count = 1}, "text stream: stops is NULL, but stop_count 1"},
        {{.stop_count = 2, .stops = (const char *[]){"a", NULL}},
         "text stream: stop string 1 is NULL"},
        {{.stop_count = 2, .stops = (const char *[]){"a", ""}},
         "text stream: stop string 1 is empty"},
        {{.stop_count = 1, .stops = (const char *[]){longer}},
         "text stream: stop string 0 has 65537 bytes; at most 65536 are possible"},
        {{.control = (tsr_decode_control)2}, "text stream: control is 2"},
        {{.invalid = (tsr_text_invalid)2}, "text stream: invalid is 2"},
    };
    tsr_text_stream *stream = NULL;
    memset(longer, 'x', sizeof longer - 1);
    ck_assert_error(tsr_text_stream_create(NULL, &stream), TSR_ERR_INVALID,
                    "text stream: params is NULL");
    ck_assert_error(tsr_text_stream_create(tsr_text_stream_params(.control = 0), &stream),
                    TSR_ERR_INVALID, "text stream: the tokenizer is NULL");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tsr_text_stream_params params = cases[i].params;
        params.struct_size = sizeof params;
        params.tokenizer = tokenizer;
        ck_assert_error(tsr_text_stream_create(&params, &stream), TSR_ERR_INVALID, cases[i].text);
    }
    const char *text;
    size_t size;
    bool stopped;
    ck_assert_error(tsr_text_stream_add(NULL, 1, &text, &size, &stopped), TSR_ERR_INVALID,
                    "text stream: the stream is NULL");
    stream = create(0, NULL, TSR_TEXT_INVALID_KEEP);
    ck_assert_error(tsr_text_stream_add(stream, 512, &text, &size, &stopped), TSR_ERR_INVALID,
                    "tokenizer: id 512 is out of range: ids are 0 to 511");
    adds(stream, 'a', "a", false);
    ends(stream, "");
    stream = NULL;
    tsr_text_stream_destroy(&stream);
    tsr_text_stream_destroy(NULL);
}
END_TEST

START_TEST(memory_runs_out)
{
    static const char *const stops[] = {"xyz"};
    uint64_t nth = 0;
    for (bool reached = true; reached; nth++) {
        tsr_text_stream *stream = NULL;
        const char *text;
        size_t size;
        bool stopped;
        tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
        tsr_status status = tsr_text_stream_create(
            tsr_text_stream_params(.tokenizer = tokenizer, .stops = stops, .stop_count = 1),
            &stream);
        for (int i = 0; status == TSR_OK && i < 2; i++)
            status =
                tsr_text_stream_add(stream, byte_token(i == 0 ? 'x' : 'y'), &text, &size, &stopped);
        if (status == TSR_OK)
            status = tsr_text_stream_end(stream, &text, &size);
        reached = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        ck_assert_int_eq(status, reached ? TSR_ERR_NO_MEMORY : TSR_OK);
        if (!reached)
            ck_assert_str_eq(text, "xy");
        tsr_text_stream_destroy(&stream);
    }
    ck_assert_uint_ge(nth, 5);
}
END_TEST

TESTS(text_stream)
{
    tcase_add_checked_fixture(tests, open_tokenizer, close_tokenizer);
    tcase_add_test(tests, without_stops_characters_are_complete);
    tcase_add_test(tests, invalid_bytes_are_replaced);
    tcase_add_test(tests, a_stop_string_across_tokens);
    tcase_add_test(tests, the_first_stop_string_counts);
    tcase_add_test(tests, beginnings_of_stop_strings_come_at_the_end);
    tcase_add_test(tests, prompts_have_no_stops);
    tcase_add_test(tests, any_ids);
    tcase_add_test(tests, mistakes);
    tcase_add_test(tests, memory_runs_out);
}
