/* Compares the ids of texts with those of llama.cpp and Hugging Face's tokenizers, and decodes
 * them. */
#include <inttypes.h>
#include <stdio.h>

#include "support/golden.h"
#include "tokenizer/cases.h"
#include "tokenizer/info.h"

static tsr_tokenizer *open_tokenizer(const char *name)
{
    char path[512];
    tsr_tokenizer *tokenizer = NULL;
    snprintf(path, sizeof path, "%s/tokenizer/%s", TEST_DATA, name);
    ck_assert_ok(tsr_tokenizer_open(path, &tokenizer));
    return tokenizer;
}

static const struct {
    const char *file, *golden;
    size_t cases;
    tsr_tokenizer_kind kind;
    const char *words;
} files[] = {
    {"stories260K-vocab.gguf", "tok_stories260K", 2, TSR_TOKENIZER_SPM, "none"},
    {"stories260K.tok512.bin", "tok_stories260K", 2, TSR_TOKENIZER_SPM, "none"},
    {"ggml-vocab-gpt-2.gguf", "tok_gpt-2", 62, TSR_TOKENIZER_BYTE_BPE, "gpt-2"},
    {"mini-gpt2.tokenizer.json", "hf_mini-gpt2", 54, TSR_TOKENIZER_BYTE_BPE, "gpt-2"},
    {"mini-llama3.tokenizer.json", "hf_mini-llama3", 54, TSR_TOKENIZER_BYTE_BPE, "llama-bpe"},
    {"TinyStories-656K.tokenizer.json", "hf_TinyStories-656K", 54, TSR_TOKENIZER_BPE, "none"},
};
#define FILES ((int)(sizeof files / sizeof *files))

START_TEST(the_ids_are_those_of_the_reference)
{
    char path[512];
    size_t cases = 0;
    tsr_tokenizer *tokenizer = open_tokenizer(files[_i].file);
    ck_assert_int_eq(info_of(tokenizer).kind, files[_i].kind);
    ck_assert_str_eq(info_of(tokenizer).words, files[_i].words);
    snprintf(path, sizeof path, "%s/tokenizer/%s.json", TEST_DATA, files[_i].golden);
    int failed = cases_check(tokenizer, path, &cases);
    ck_assert_msg(failed == 0, "%d of %zu cases of %s differ", failed, cases, files[_i].golden);
    ck_assert_uint_eq(cases, files[_i].cases);
    tsr_tokenizer_close(&tokenizer);
}
END_TEST

/* The same vocabulary in two formats gives the same ids, for all kinds of texts. */
START_TEST(llama2c_and_gguf_agree)
{
    tsr_tokenizer *gguf = open_tokenizer("stories260K-vocab.gguf");
    tsr_tokenizer *bin = open_tokenizer("stories260K.tok512.bin");
    json_t *document = golden_load("tokenizer/tok_gpt-2"), *one;
    size_t i;
    json_array_foreach(golden_list(document, "cases"), i, one)
    {
        octets text = cases_base64(golden_text(one, "text_b64"));
        int32_t *ids = NULL;
        uint64_t count = 0;
        ck_assert_ok(tsr_tokenizer_encode(gguf, text.data, text.size, NULL, &ids, &count));
        ck_assert(cases_encodes(bin, golden_text(one, "name"), &text, NULL, ids, count));
        tsr_tokenizer_free_ids(&ids);
        free(text.data);
    }
    ck_assert_uint_eq(i, 62);
    ck_assert_int_eq(tsr_tokenizer_size(bin), 512);
    ck_assert_int_eq(tsr_tokenizer_size(gguf), 512);
    ck_assert_int_eq(info_of(bin).bos, info_of(gguf).bos);
    ck_assert_int_eq(info_of(bin).eos, info_of(gguf).eos);
    json_decref(document);
    tsr_tokenizer_close(&bin);
    tsr_tokenizer_close(&gguf);
}
END_TEST

TESTS(golden)
{
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, the_ids_are_those_of_the_reference, 0, FILES);
    tcase_add_test(tests, llama2c_and_gguf_agree);
}
