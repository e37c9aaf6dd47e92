/* Tests files of tokenizers: refusals must name what is wrong, and failed allocations must leak
 * nothing. */
#include "tokenizer/cases.h"
#include "tokenizer/tokenizer_read.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "shard/files.h"
#include "support/golden.h"
#include "tokenizer/info.h"

/* GGUF ----------------------------------------------------------------------------------------- */

enum { U32 = 4, I32 = 5, F32 = 6, BOOL = 7, STRING = 8, ARRAY = 9 };
#define KEY(name) ("tokenizer.ggml." name)

static void put_key(bytes *to, const char *key, uint32_t type)
{
    put_text(to, key);
    put_integer(to, type, 4);
}

static void put_string(bytes *to, const char *key, const char *value)
{
    put_key(to, key, STRING);
    put_text(to, value);
}

static void put_array(bytes *to, const char *key, uint32_t type, uint64_t count)
{
    put_key(to, key, ARRAY);
    put_integer(to, type, 4);
    put_integer(to, count, 8);
}

static void put_strings(bytes *to, const char *key, size_t count, const char *const *texts)
{
    put_array(to, key, STRING, count);
    for (size_t i = 0; i < count; i++)
        put_text(to, texts[i]);
}

static void put_u32(bytes *to, const char *key, uint32_t value)
{
    put_key(to, key, U32);
    put_integer(to, value, 4);
}

static const char *const spm_tokens[] = {"<unk>", "<s>", "</s>", "▁", "a", "▁a"};
static const uint32_t spm_types[] = {2, 3, 3, 1, 1, 1};
/* 0, 0, 0, -1, -2 and -0.5, as bits of floats */
static const uint32_t spm_scores[] = {0, 0, 0, 0xbf800000, 0xc0000000, 0xbf000000};

/* How the file that spm_file() makes differs from a valid one. */
typedef struct change {
    const char *model, *pre; /* NULL: llama, none */
    const char *token;       /* instead of token 4 */
    uint32_t score, type;    /* of token 4; 0: unchanged */
    uint32_t bos;            /* 0: unchanged */
    size_t scores, types;    /* the numbers of scores and types; 0: unchanged */
    bool no_scores, no_tokens, two_models, real_types;
} change;

static bytes spm_file(const change *with)
{
    bytes file = {0};
    size_t scores = with->scores > 0 ? with->scores : 6, types = with->types > 0 ? with->types : 6;
    uint64_t keys = 4;
    keys += with->two_models ? 1 : 0;
    keys += with->bos > 0 ? 1 : 0;
    keys += with->pre != NULL ? 1 : 0;
    keys -= with->no_scores ? 1 : 0;
    keys -= with->no_tokens ? 1 : 0;
    put_gguf_head(&file, 3, 0, keys);
    put_string(&file, KEY("model"), with->model != NULL ? with->model : "llama");
    if (with->two_models)
        put_string(&file, KEY("model"), "llama");
    if (with->pre != NULL)
        put_string(&file, KEY("pre"), with->pre);
    const char *tokens[6];
    memcpy(tokens, spm_tokens, sizeof tokens);
    tokens[4] = with->token != NULL ? with->token : "a";
    if (!with->no_tokens)
        put_strings(&file, KEY("tokens"), 6, tokens);
    if (!with->no_scores)
        put_array(&file, KEY("scores"), F32, scores);
    for (size_t i = 0; i < scores && !with->no_scores; i++)
        put_integer(&file, i == 4 && with->score != 0 ? with->score : spm_scores[i], 4);
    put_array(&file, KEY("token_type"), with->real_types ? F32 : I32, types);
    for (size_t i = 0; i < types; i++)
        put_integer(&file, i == 4 && with->type != 0 ? with->type : spm_types[i], 4);
    if (with->bos > 0)
        put_u32(&file, KEY("bos_token_id"), with->bos);
    return file;
}

typedef tsr_status (*read_fn)(tsr__file *file, tsr_tokenizer *tokenizer);

static tsr_status read_bytes(read_fn read, const bytes *file, tsr_tokenizer **out)
{
    uint8_t *exact = malloc(file->size == 0 ? 1 : file->size);
    ck_assert_ptr_nonnull(exact);
    if (file->size > 0)
        memcpy(exact, file->data, file->size);
    tsr__file in = {.size = file->size, .data = exact, .data_size = file->size, .descriptor = -1};
    tsr_tokenizer *tokenizer = tsr__tokenizer_create();
    tsr_status status = tokenizer != NULL ? read(&in, tokenizer) : TSR_ERR_NO_MEMORY;
    if (status != TSR_OK)
        tsr_tokenizer_close(&tokenizer);
    free(exact);
    *out = tokenizer;
    return status;
}

static const struct {
    change with;
    tsr_status status;
    const char *text; /* the error text contains this */
} gguf_mistakes[] = {
    {{.model = "bert"},
     TSR_ERR_UNSUPPORTED,
     "gguf: tokenizers of the model 'bert' are not supported; only llama, gpt2 and gemma4 are"},
    {{.two_models = true}, TSR_ERR_INVALID, "key 'tokenizer.ggml.model': the key comes twice"},
    {{.no_tokens = true}, TSR_ERR_INVALID, "gguf: the file has no key 'tokenizer.ggml.tokens'"},
    {{.no_scores = true}, TSR_ERR_INVALID, "gguf: the file has no key 'tokenizer.ggml.scores'"},
    {{.scores = 5},
     TSR_ERR_INVALID,
     "gguf: 'tokenizer.ggml.scores' has 5 elements, and 'tokenizer.ggml.tokens' has 6"},
    {{.types = 4},
     TSR_ERR_INVALID,
     "gguf: 'tokenizer.ggml.token_type' has 4 elements, and 'tokenizer.ggml.tokens' has 6"},
    {{.real_types = true},
     TSR_ERR_INVALID,
     "key 'tokenizer.ggml.token_type': it is an array of type 6, not an array of i32"},
    {{.type = 7}, TSR_ERR_INVALID, "token 4 has type 7; types are 1 to 6"},
    {{.type = 0xffffffff}, TSR_ERR_INVALID, "token 4 has type -1; types are 1 to 6"},
    {{.type = 6}, TSR_ERR_INVALID, "token 4 is of type byte, but is not spelled <0x00> to <0xFF>"},
    {{.score = 0x7fc00000}, TSR_ERR_INVALID, "tokenizer: the score of token 4 is not a number"},
    {{.token = "▁"}, TSR_ERR_INVALID, "tokenizer: token '▁' has two ids, 3 and 4"},
    {{.bos = 6}, TSR_ERR_INVALID, "'tokenizer.ggml.bos_token_id' is 6; ids are 0 to 5"},
    {{.model = "gpt2", .pre = "mine"},
     TSR_ERR_UNSUPPORTED,
     "tokenizer: the pre-tokenizer 'mine' is not known"},
    {{.model = "gpt2"}, TSR_ERR_INVALID, "gguf: the file has no key 'tokenizer.ggml.merges'"},
};

START_TEST(a_wrong_gguf_file_is_refused)
{
    bytes file = spm_file(&gguf_mistakes[_i].with);
    tsr_tokenizer *tokenizer = NULL;
    tsr_status status = read_bytes(tsr__tokenizer_read_gguf, &file, &tokenizer);
    ck_assert_str_eq(tsr_status_name(status), tsr_status_name(gguf_mistakes[_i].status));
    ck_assert_msg(strstr(tsr_last_error(), gguf_mistakes[_i].text) != NULL, "'%s' has no '%s'",
                  tsr_last_error(), gguf_mistakes[_i].text);
    free(file.data);
}
END_TEST

START_TEST(a_gguf_file_without_a_tokenizer_is_refused)
{
    bytes file = {0};
    tsr_tokenizer *tokenizer = NULL;
    put_gguf_head(&file, 3, 0, 0);
    ck_assert_error(read_bytes(tsr__tokenizer_read_gguf, &file, &tokenizer), TSR_ERR_NOT_FOUND,
                    "gguf: the file has no tokenizer: no key 'tokenizer.ggml.model'");
    free(file.data);
}
END_TEST

static tsr_status read_merge(const char *merge, tsr_tokenizer **out)
{
    static const char *const tokens[] = {"a", "b", "ab", "c"};
    bytes file = {0};
    put_gguf_head(&file, 3, 0, 3);
    put_string(&file, KEY("model"), "gpt2");
    put_strings(&file, KEY("tokens"), 4, tokens);
    put_strings(&file, KEY("merges"), 1, &merge);
    tsr_status status = read_bytes(tsr__tokenizer_read_gguf, &file, out);
    free(file.data);
    return status;
}

START_TEST(merges_of_unknown_tokens_are_refused)
{
    tsr_tokenizer *tokenizer = NULL;
    ck_assert_ok(read_merge("a b", &tokenizer));
    tsr_tokenizer_close(&tokenizer);
    ck_assert_error(read_merge("a d", &tokenizer), TSR_ERR_INVALID,
                    "tokenizer: merge 0 is of 'a' and 'd'; the second is no token");
    ck_assert_error(read_merge("dd b", &tokenizer), TSR_ERR_INVALID,
                    "tokenizer: merge 0 is of 'dd' and 'b'; the first is no token");
    ck_assert_error(read_merge("a c", &tokenizer), TSR_ERR_INVALID,
                    "tokenizer: merge 0 is of 'a' and 'c', whose union is no token");
    ck_assert_error(read_merge("ab", &tokenizer), TSR_ERR_INVALID,
                    "tokenizer: merge 0, 'ab', is not two tokens");
    ck_assert_error(read_merge("a ", &tokenizer), TSR_ERR_INVALID,
                    "tokenizer: merge 0, 'a', is not two tokens");
    ck_assert_error(read_merge("", &tokenizer), TSR_ERR_INVALID,
                    "tokenizer: merge 0, '', is not two tokens");
}
END_TEST

/* Checks that the file is refused if it is cut to fewer than `least` bytes, and may be accepted if
 * it is cut to more; and that any allocation may fail. */
static void check_file(read_fn read, bytes file, size_t least)
{
    tsr_tokenizer *tokenizer = NULL;
    size_t whole = file.size;
    for (file.size = 0; file.size < whole; file.size++) {
        tsr_status status = read_bytes(read, &file, &tokenizer);
        ck_assert_msg(status == TSR_ERR_INVALID || (status == TSR_OK && file.size >= least),
                      "%zu of %zu bytes: %s", file.size, whole, tsr_status_name(status));
        tsr_tokenizer_close(&tokenizer);
    }
    ck_assert_ok(read_bytes(read, &file, &tokenizer));
    tsr_tokenizer_close(&tokenizer);
    for (uint64_t nth = 0;; nth++) {
        ck_assert_uint_lt(nth, 10000);
        tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
        tsr_status status = read_bytes(read, &file, &tokenizer);
        bool reached = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        ck_assert_int_eq(status, reached ? TSR_ERR_NO_MEMORY : TSR_OK);
        tsr_tokenizer_close(&tokenizer);
        if (!reached)
            break;
    }
    free(file.data);
}

START_TEST(gguf_files_may_end_anywhere)
{
    bytes file = spm_file(&(change){.bos = 1});
    size_t whole = file.size;
    check_file(tsr__tokenizer_read_gguf, file, whole);
}
END_TEST

START_TEST(other_types_of_ids_are_read)
{
    static const struct {
        uint32_t type;
        int size;
        uint64_t value;
        int32_t id; /* -2: the file is refused */
    } all[] = {{0, 1, 5, 5},
               {1, 1, 0xff, -1},
               {2, 2, 4, 4},
               {3, 2, 0xffff, -1},
               {4, 4, 3, 3},
               {5, 4, 0xffffffff, -1},
               {4, 4, 0xffffffff, -1},
               {10, 8, 2, 2},
               {11, 8, UINT64_MAX, -1},
               {10, 8, UINT64_MAX, -2},
               {11, 8, 6, -2},
               {7, 1, 1, -2},
               {6, 4, 0, -2},
               {5, 4, 0xfffffffe, -2}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        bytes file = spm_file(&(change){0});
        file.data[16]++; /* one more key */
        put_key(&file, KEY("padding_token_id"), all[i].type);
        put_integer(&file, all[i].value, all[i].size);
        tsr_tokenizer *tokenizer = NULL;
        tsr_status status = read_bytes(tsr__tokenizer_read_gguf, &file, &tokenizer);
        ck_assert_msg(status == (all[i].id == -2 ? TSR_ERR_INVALID : TSR_OK), "case %zu", i);
        ck_assert_int_eq(info_of(tokenizer).pad, all[i].id == -2 ? -1 : all[i].id);
        tsr_tokenizer_close(&tokenizer);
        free(file.data);
    }
}
END_TEST

/* llama2.c ------------------------------------------------------------------------------------- */

static bytes llama2c_file(void)
{
    static const char *const tokens[] = {"<unk>", "\n<s>\n", "\n</s>\n", "<0x0A>", " ", "a", " a"};
    bytes file = {0};
    put_integer(&file, 6, 4);
    for (size_t i = 0; i < 7; i++) {
        put_integer(&file, spm_scores[i < 6 ? i : 5], 4);
        put_integer(&file, strlen(tokens[i]), 4);
        put_bytes(&file, tokens[i], strlen(tokens[i]));
    }
    return file;
}

START_TEST(llama2c_files_may_end_anywhere)
{
    /* A file that ends after the third token, or after a later one, is a shorter vocabulary and may
     * be accepted. */
    check_file(tsr__tokenizer_read_llama2c, llama2c_file(), 4 + 3 * 8 + 5 + 5 + 6);
}
END_TEST

START_TEST(a_long_token_is_refused)
{
    bytes file = llama2c_file();
    tsr_tokenizer *tokenizer = NULL;
    put_integer(&file, 0, 4);
    put_integer(&file, 4097, 4);
    put_zeros(&file, 4097);
    ck_assert_error(read_bytes(tsr__tokenizer_read_llama2c, &file, &tokenizer), TSR_ERR_INVALID,
                    "tokenizer: offset 90: token 7 has 4097 bytes; 4096 are allowed");
    file.size = 20;
    ck_assert_int_eq(read_bytes(tsr__tokenizer_read_llama2c, &file, &tokenizer), TSR_ERR_INVALID);
    free(file.data);
}
END_TEST

/* tokenizer.json ------------------------------------------------------------------------------- */

#define BYTE_LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"
#define MODEL(members) "\"model\":{\"type\":\"BPE\"," members "}"
#define SMALL MODEL("\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"<s>\":3},\"merges\":[\"a b\"]")
#define BYTES "\"pre_tokenizer\":" BYTE_LEVEL ",\"decoder\":" BYTE_LEVEL
#define ADDED(members) "{" SMALL "," BYTES ",\"added_tokens\":[{" members "}]}"
#define POST(value) "{" SMALL "," BYTES ",\"post_processor\":" value "}"
#define S1 "{\"SpecialToken\":{\"id\":\"<s>\"}}"
#define S3 S1 "," S1 "," S1
#define PRE(value) "{" SMALL ",\"decoder\":" BYTE_LEVEL ",\"pre_tokenizer\":" value "}"
#define NORMAL(value) "{" SMALL "," BYTES ",\"normalizer\":" value "}"
#define EIGHT "{\"type\":\"Replace\",\"pattern\":{\"String\":\"b\"},\"content\":\"bbbbbbbb\"}"
#define LONG_TOKEN                                                                                 \
    "{" SMALL "," BYTES ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[" EIGHT "," EIGHT \
    "," EIGHT "," EIGHT "," EIGHT "," EIGHT                                                        \
    "]},\"added_tokens\":[{\"id\":1,\"content\":\"b\",\"normalized\":true}]}"
#define DECODER(value) "{" SMALL ",\"decoder\":" value "}"

static tsr_status read_text(const char *text, const char *config, tsr_tokenizer **out)
{
    tsr_tokenizer *tokenizer = tsr__tokenizer_create();
    tsr_status status =
        tokenizer != NULL ? tsr__tokenizer_read_json(text, strlen(text), config,
                                                     config != NULL ? strlen(config) : 0, tokenizer)
                          : TSR_ERR_NO_MEMORY;
    if (status != TSR_OK)
        tsr_tokenizer_close(&tokenizer);
    *out = tokenizer;
    return status;
}

static const struct {
    const char *json;
    tsr_status status;
    const char *text;
} json_mistakes[] = {
    {"[]", TSR_ERR_INVALID, "tokenizer: offset 0: an object expected, not '['"},
    {"{}", TSR_ERR_INVALID, "tokenizer: offset 0: a tokenizer.json without \"model\""},
    {"{} x", TSR_ERR_INVALID, "nothing more expected"},
    {"{\"model\":{},\"model\":{}}", TSR_ERR_INVALID, "\"model\" comes twice"},
    {"{\"model\":{}}", TSR_ERR_INVALID, "an object without a \"type\""},
    {"{\"model\":{\"type\":\"Unigram\"}}", TSR_ERR_UNSUPPORTED,
     "models of the type Unigram are not supported; only BPE is"},
    {"{" MODEL("\"vocab\":{}") "}", TSR_ERR_INVALID, "a model without \"merges\""},
    {"{" MODEL("\"merges\":[]") "}", TSR_ERR_INVALID, "a model without \"vocab\""},
    {"{" MODEL("\"vocab\":{},\"merges\":[]") "}", TSR_ERR_INVALID,
     "tokenizer: the vocabulary is empty"},
    {"{" MODEL("\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]") "}", TSR_ERR_INVALID,
     "tokenizer: id 0 is given to two tokens, 'a' and 'b'"},
    {"{" MODEL("\"vocab\":{\"a\":0,\"b\":2},\"merges\":[]") "}", TSR_ERR_INVALID,
     "tokenizer: id 1 has no token, although ids go up to 2"},
    {"{" MODEL("\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]") "}", TSR_ERR_INVALID,
     "tokenizer: token 'a' has two ids, 0 and 1"},
    {"{" MODEL("\"vocab\":{\"a\":900},\"merges\":[]") "}", TSR_ERR_INVALID,
     "id 900 is too large: a file of"},
    {"{" MODEL("\"vocab\":{\"a\":-1},\"merges\":[]") "}", TSR_ERR_INVALID, "no integer from 0"},
    {"{" MODEL("\"vocab\":{\"a\":0},\"merges\":[\"a\"]") "}", TSR_ERR_INVALID,
     "a merge without a space between its tokens"},
    {"{" MODEL("\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]") "}", TSR_ERR_INVALID,
     "a merge of 1 tokens, not 2"},
    {"{" MODEL("\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"a\",\"a\"]]") "}", TSR_ERR_INVALID,
     "a merge of more than 2 tokens"},
    {"{" MODEL("\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"b\"]]") "}", TSR_ERR_INVALID,
     "tokenizer: merge 0 is of 'a' and 'b'; the second is no token"},
    {"{" MODEL("\"vocab\":{\"a\":0},\"merges\":[],\"unk_token\":\"u\"") "}", TSR_ERR_INVALID,
     "\"unk_token\" is 'u', which is not in the vocabulary"},
    {"{" MODEL("\"vocab\":{\"a\":0},\"merges\":[],\"dropout\":0.1") "}", TSR_ERR_UNSUPPORTED,
     "a model with \"dropout\" is not supported"},
    {"{" MODEL("\"vocab\":{\"a\":0},\"merges\":[],\"end_of_word_suffix\":\"</w>\"") "}",
     TSR_ERR_UNSUPPORTED, "a model with \"end_of_word_suffix\" is not supported"},
    {"{" SMALL "}", TSR_ERR_UNSUPPORTED, "tokenizer: a tokenizer without a decoder"},
    {"{" SMALL ",\"decoder\":" BYTE_LEVEL "}", TSR_ERR_INVALID,
     "tokenizer: the pre-tokenizer does not write bytes by the byte-level alphabet, and the "
     "decoder "
     "reads it"},
    {"{" SMALL ",\"pre_tokenizer\":" BYTE_LEVEL ",\"decoder\":{\"type\":\"Fuse\"}}",
     TSR_ERR_INVALID,
     "tokenizer: the pre-tokenizer writes bytes by the byte-level alphabet, and the decoder does "
     "not read it"},
    {ADDED("\"id\":4"), TSR_ERR_INVALID, "an added token without \"id\" or \"content\""},
    {ADDED("\"id\":2,\"content\":\"x\""), TSR_ERR_INVALID,
     "tokenizer: id 2 is given to two tokens, 'ab' and 'x'"},
    {ADDED("\"id\":4,\"content\":\"ab\""), TSR_ERR_INVALID,
     "tokenizer: token 'ab' has two ids, 2 and 4"},
    {ADDED("\"id\":70000,\"content\":\"x\""), TSR_ERR_INVALID, "id 70000 is too large"},
    {ADDED("\"id\":4,\"content\":\"x\",\"colour\":1"), TSR_ERR_INVALID,
     "unknown member \"colour\""},
    {POST("{\"type\":\"Other\"}"), TSR_ERR_UNSUPPORTED,
     "the post-processor 'Other' is not supported"},
    {POST("{\"type\":\"TemplateProcessing\"}"), TSR_ERR_INVALID, "a template without \"single\""},
    {POST("{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}}],"
          "\"special_tokens\":{}}"),
     TSR_ERR_INVALID, "the template has no ids for its special token '<s>'"},
    {POST("{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}}],"
          "\"special_tokens\":{\"<s>\":{\"ids\":[4]}}}"),
     TSR_ERR_INVALID, "id 4 of a template; ids are 0 to 3"},
    {POST("{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}}],"
          "\"special_tokens\":{\"<s>\":{\"ids\":[]}}}"),
     TSR_ERR_INVALID, "the template has no ids for its special token '<s>'"},
    {POST("{\"type\":\"TemplateProcessing\",\"single\":[" S3 "," S3 "," S3 "," S3 "," S3 "],"
          "\"special_tokens\":{\"<s>\":{\"ids\":[0,0,0,0,0]}}}"),
     TSR_ERR_INVALID, "more than 64 tokens stand around a text"},
    {POST("{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{}},{\"Sequence\":{}}]}"),
     TSR_ERR_INVALID, "a template that is not special tokens around one sequence"},
    {POST("{\"type\":\"BertProcessing\",\"cls\":[\"<s>\",3]}"), TSR_ERR_INVALID,
     "a post-processor without \"cls\" and \"sep\""},
    {POST("{\"type\":\"BertProcessing\",\"cls\":[\"<s>\",3],\"sep\":[\"x\",9]}"), TSR_ERR_INVALID,
     "id 9 is not in the vocabulary; ids are 0 to 3"},
    {POST("{\"type\":\"Sequence\",\"processors\":[{\"type\":\"BertProcessing\",\"cls\":[\"a\",0],"
          "\"sep\":[\"a\",0]},{\"type\":\"TemplateProcessing\",\"single\":[]}]}"),
     TSR_ERR_INVALID, "two post-processors that add tokens"},
    {PRE("{\"type\":\"Whitespace\"}"), TSR_ERR_UNSUPPORTED,
     "the pre-tokenizer 'Whitespace' is not supported"},
    {PRE("{\"type\":\"Sequence\"}"), TSR_ERR_INVALID, "a sequence without \"pretokenizers\""},
    {PRE("{\"type\":\"Sequence\",\"pretokenizers\":[" BYTE_LEVEL ",{\"type\":\"Digits\"}]}"),
     TSR_ERR_UNSUPPORTED, "a pre-tokenizer after ByteLevel or Metaspace is not supported"},
    {PRE("{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\"},{\"type\":\"ByteLevel\"}]"
         "}"),
     TSR_ERR_UNSUPPORTED, "add_prefix_space after other pre-tokenizers is not supported"},
    {PRE("{\"type\":\"Split\"}"), TSR_ERR_INVALID, "an object without \"pattern\""},
    {PRE("{\"type\":\"Split\",\"pattern\":{}}"), TSR_ERR_INVALID,
     "a pattern that is neither a String nor a Regex"},
    {PRE("{\"type\":\"Split\",\"pattern\":{\"String\":\" \"}}"), TSR_ERR_UNSUPPORTED,
     "the pre-tokenizer Split at the string ' ' is not supported"},
    {PRE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\".\"},\"behavior\":\"Isolated\"}"),
     TSR_ERR_UNSUPPORTED,
     "tokenizer: the regular expression '.' is not known, so texts cannot be cut into words"},
    {PRE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\".\"},\"behavior\":\"Removed\"}"),
     TSR_ERR_UNSUPPORTED, "the pre-tokenizer Split with the behaviour 'Removed' is not supported"},
    {PRE("{\"type\":\"Metaspace\",\"replacement\":\"_\"}"), TSR_ERR_UNSUPPORTED,
     "the pre-tokenizer Metaspace with '_' is not supported"},
    {PRE("{\"type\":\"Metaspace\",\"prepend_scheme\":\"last\"}"), TSR_ERR_UNSUPPORTED,
     "the pre-tokenizer Metaspace with the scheme 'last' is not supported"},
    {NORMAL("{\"type\":\"Lowercase\"}"), TSR_ERR_UNSUPPORTED,
     "the normaliser 'Lowercase' is not supported"},
    {NORMAL("{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"x\"}"),
     TSR_ERR_INVALID, "a normaliser that replaces nothing"},
    {LONG_TOKEN, TSR_ERR_INVALID,
     "tokenizer: step 6 of the normaliser makes a text of 1 bytes longer than "},
    {NORMAL("{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" +\"},\"content\":\"x\"}"),
     TSR_ERR_UNSUPPORTED, "the normaliser Replace of the regular expression ' +' is not supported"},
    {DECODER("{\"type\":\"WordPiece\"}"), TSR_ERR_UNSUPPORTED,
     "the decoder 'WordPiece' is not supported"},
    {DECODER("{\"type\":\"Metaspace\",\"replacement\":\"_\"}"), TSR_ERR_UNSUPPORTED,
     "the decoder Metaspace with '_' is not supported"},
    {DECODER("{\"type\":\"Replace\",\"pattern\":{\"String\":\"_\"},\"content\":\" \"}"),
     TSR_ERR_UNSUPPORTED, "the decoder Replace of '_' is not supported"},
    {DECODER("{\"type\":\"Strip\",\"content\":\" \",\"start\":2,\"stop\":0}"), TSR_ERR_UNSUPPORTED,
     "the decoder Strip of ' ' is not supported"},
};
#define JSON_MISTAKES ((int)(sizeof json_mistakes / sizeof *json_mistakes))

START_TEST(a_wrong_tokenizer_json_is_refused)
{
    tsr_tokenizer *tokenizer = NULL;
    tsr_status status = read_text(json_mistakes[_i].json, NULL, &tokenizer);
    ck_assert_msg(status == json_mistakes[_i].status &&
                      strstr(tsr_last_error(), json_mistakes[_i].text) != NULL,
                  "%s, '%s', instead of '%s'", tsr_status_name(status), tsr_last_error(),
                  json_mistakes[_i].text);
}
END_TEST

/* In Gemma's files, a normaliser replaces the string at which a pre-tokenizer splits. */
START_TEST(split_at_a_replaced_string_changes_nothing)
{
    static const char split[] = "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\" "
                                "\"},\"behavior\":\"MergedWithPrevious\"},";
    static const struct {
        const char *normalizers;
        bool works;
    } cases[] = {
        {"{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"b\"}", true},
        {"{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"a b\"}", false},
        {"{\"type\":\"Replace\",\"pattern\":{\"String\":\"x\"},\"content\":\"b\"}", false},
        {"{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"b\"},"
         "{\"type\":\"NFKC\"}",
         false},
        {"", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tsr_tokenizer *tokenizer = NULL;
        char text[1024];
        snprintf(text, sizeof text,
                 "{" SMALL ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[%s]},%s"
                 "\"decoder\":{\"type\":\"Fuse\"}}",
                 cases[i].normalizers, split);
        const tsr_status status = read_text(text, NULL, &tokenizer);
        if (!cases[i].works) {
            ck_assert_int_eq(status, TSR_ERR_UNSUPPORTED);
            ck_assert_ptr_nonnull(strstr(tsr_last_error(), "Split at the string ' '"));
            continue;
        }
        ck_assert_ok(status);
        int32_t *ids = NULL;
        uint64_t count = 0;
        ck_assert_ok(tsr_tokenizer_encode(tokenizer, "a a b", 5, NULL, &ids, &count));
        ck_assert_uint_eq(count, 3); /* "ab", "ab", "b" */
        ck_assert(ids[0] == 2 && ids[1] == 2 && ids[2] == 1);
        tsr_tokenizer_free_ids(&ids);
        tsr_tokenizer_close(&tokenizer);
    }
}
END_TEST

/* <|end|> ends a message, and generation only if there is no <|return|>. */
START_TEST(replies_of_several_messages_have_an_end)
{
    tsr_tokenizer *tokenizer = NULL;
    ck_assert_ok(read_text("{" SMALL ",\"added_tokens\":["
                           "{\"id\":4,\"content\":\"<|end|>\",\"special\":true}]," BYTES "}",
                           NULL, &tokenizer));
    ck_assert(tsr_tokenizer_is_end(tokenizer, 4));
    tsr_tokenizer_close(&tokenizer);
    ck_assert_ok(read_text("{" SMALL ",\"added_tokens\":["
                           "{\"id\":4,\"content\":\"<|end|>\",\"special\":true},"
                           "{\"id\":5,\"content\":\"<|return|>\",\"special\":true},"
                           "{\"id\":6,\"content\":\"<|call|>\",\"special\":true}]," BYTES "}",
                           NULL, &tokenizer));
    ck_assert(!tsr_tokenizer_is_end(tokenizer, 4));
    ck_assert(tsr_tokenizer_is_end(tokenizer, 5));
    ck_assert(tsr_tokenizer_is_end(tokenizer, 6));
    tsr_tokenizer_close(&tokenizer);
}
END_TEST

START_TEST(the_config_names_tokens)
{
    tsr_tokenizer *tokenizer = NULL;
    ck_assert_ok(read_text("{" SMALL "," BYTES "}",
                           "{\"bos_token\":\"<s>\",\"eos_token\":{\"x\":1,\"content\":\"b\"},"
                           "\"pad_token\":null,\"more\":[]}",
                           &tokenizer));
    ck_assert_int_eq(info_of(tokenizer).bos, 3);
    ck_assert_int_eq(info_of(tokenizer).eos, 1);
    ck_assert_int_eq(info_of(tokenizer).pad, -1);
    ck_assert_int_eq(info_of(tokenizer).unknown, -1);
    ck_assert(tsr_tokenizer_is_end(tokenizer, 1));
    ck_assert(!tsr_tokenizer_is_end(tokenizer, 3));
    tsr_tokenizer_close(&tokenizer);
    ck_assert_error(
        read_text("{" SMALL "," BYTES "}", "{\"eos_token\":\"</s>\"}", &tokenizer), TSR_ERR_INVALID,
        "tokenizer_config.json: offset 13: \"eos_token\" is '</s>', which is not in the "
        "vocabulary");
}
END_TEST

static const char everything[] =
    "{" SMALL ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\"},"
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}]},\"decoder\":" BYTE_LEVEL
    ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":"
    "\"Replace\",\"pattern\":{\"String\":\"x\"},\"content\":\"a\"}]},\"post_processor\":{\"type\":"
    "\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}},{\"Sequence\":{}}],"
    "\"special_tokens\":{\"<s>\":{\"ids\":[3]}}},\"added_tokens\":[{\"id\":3,\"content\":\"<s>\","
    "\"special\":true,\"normalized\":true},{\"id\":4,\"content\":\"<t>\"}]}";

START_TEST(tokenizer_json_may_end_anywhere)
{
    tsr_tokenizer *tokenizer = NULL;
    char text[sizeof everything];
    for (size_t size = 0; size < sizeof everything - 1; size++) {
        memcpy(text, everything, size);
        text[size] = '\0';
        ck_assert_int_eq(read_text(text, NULL, &tokenizer), TSR_ERR_INVALID);
        ck_assert_ptr_nonnull(strstr(tsr_last_error(), "tokenizer: offset "));
    }
    for (uint64_t nth = 0;; nth++) {
        ck_assert_uint_lt(nth, 10000);
        tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
        tsr_status status = read_text(everything, "{\"eos_token\":\"<s>\"}", &tokenizer);
        int32_t *ids = NULL;
        uint64_t count = 0;
        if (status == TSR_OK)
            status = tsr_tokenizer_encode(tokenizer, "abxe\xcc\x81 <s> 12 <t>ab", 18,
                                          tsr_encode_params(.control = TSR_ENCODE_CONTROL_TOKEN),
                                          &ids, &count);
        bool reached = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        tsr_tokenizer_close(&tokenizer);
        tsr_tokenizer_free_ids(&ids);
        if (reached) {
            ck_assert_int_eq(status, TSR_ERR_NO_MEMORY);
            continue;
        }
        /* No allocation failed any more. The text has a byte without a token. */
        ck_assert_int_eq(status, TSR_ERR_INVALID);
        ck_assert_str_eq(tsr_last_error(), "tokenizer: the vocabulary has no token for byte 0xc3, "
                                           "and no unknown token");
        break;
    }
}
END_TEST

/* tokenizer.model ------------------------------------------------------------------------------ */

/* These two functions append a field: one whose value is bytes, and one whose value is a number. */
static void put_field(bytes *to, int number, const void *data, size_t size)
{
    put_integer(to, (uint64_t)number << 3 | 2, 1);
    put_integer(to, size, 1);
    put_bytes(to, data, size);
}

static void put_long_field(bytes *to, int number, uint64_t value)
{
    const uint64_t key = (uint64_t)number << 3;
    if (key >= 128)
        put_integer(to, (key & 127) | 128, 1);
    put_integer(to, key >= 128 ? key >> 7 : key, 1);
    put_integer(to, value, 1);
}

static void put_piece(bytes *to, const char *text, float score, int type)
{
    bytes piece = {0};
    uint32_t bits;
    memcpy(&bits, &score, sizeof bits);
    put_field(&piece, 1, text, strlen(text));
    put_integer(&piece, 2 << 3 | 5, 1);
    put_integer(&piece, bits, 4);
    put_long_field(&piece, 3, (uint64_t)type);
    put_field(to, 1, piece.data, piece.size);
    free(piece.data);
}

/* Makes a file whose last piece has the type `type`. Field number `training` of the training's
 * parameters has the value `value`, and field number `normalizer` of the normaliser's has the value
 * `flag`. */
static bytes model_file(int type, int training, int value, int normalizer, int flag)
{
    static const struct {
        const char *text;
        float score;
        int type;
    } pieces[] = {{"<unk>", 0, 2},  {"<s>", 0, 3},     {"</s>", 0, 3},
                  {"<0x0A>", 0, 6}, {"\u2581", -5, 1}, {"a", -3, 1},
                  {"b", -4, 1},     {"ab", -1, 1},     {"\u2581ab", -2, 1}};
    bytes file = {0}, inside = {0};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        put_piece(&file, pieces[i].text, pieces[i].score,
                  i + 1 == sizeof pieces / sizeof *pieces ? type : pieces[i].type);
    put_long_field(&inside, 3, 2);
    put_long_field(&inside, training, (uint64_t)value);
    put_field(&file, 2, inside.data, inside.size);
    inside.size = 0;
    put_long_field(&inside, 4, 0);
    put_long_field(&inside, normalizer, (uint64_t)flag);
    put_field(&file, 3, inside.data, inside.size);
    free(inside.data);
    return file;
}

START_TEST(a_tokenizer_model_is_read)
{
    bytes file = model_file(1, 40, 0, 3, 1);
    tsr_tokenizer *tokenizer = NULL;
    static const int32_t wanted[] = {1, 8, 4, 5, 3};
    const octets text = {(char[]){"ab a\n"}, 5};
    ck_assert_ok(read_bytes(tsr__tokenizer_read_model, &file, &tokenizer));
    ck_assert(cases_encodes(tokenizer, "tokenizer.model", &text, NULL, wanted, 5));
    ck_assert(
        cases_decodes(tokenizer, "tokenizer.model", wanted, 5, TSR_DECODE_CONTROL_SKIP, &text));
    ck_assert_int_eq(info_of(tokenizer).bos, 1);
    tsr_tokenizer_close(&tokenizer);
    for (size_t size = file.size; size-- > 0;) {
        const bytes start = {file.data, size};
        const tsr_status status = read_bytes(tsr__tokenizer_read_model, &start, &tokenizer);
        ck_assert(status == TSR_ERR_INVALID || status == TSR_ERR_UNSUPPORTED);
    }
    free(file.data);
}
END_TEST

START_TEST(a_wrong_tokenizer_model_is_refused)
{
    static const struct {
        int type, training, value, normalizer, flag;
        tsr_status status;
        const char *text;
    } cases[] = {
        {7, 40, 0, 3, 1, TSR_ERR_INVALID,
         "tokenizer: offset 115: piece 8 has type 7; types are 1 to 6, and pieces of type 6 are "
         "<0x00> to <0xFF>"},
        {1, 3, 1, 3, 1, TSR_ERR_UNSUPPORTED,
         "tokenizer: a tokenizer.model that is not BPE is not supported"},
        {1, 41, 9, 3, 1, TSR_ERR_INVALID, "tokenizer: special id 9; ids are 0 to 8"},
        {1, 40, 0, 4, 1, TSR_ERR_UNSUPPORTED,
         "tokenizer: a tokenizer.model that removes repeated spaces is not supported"},
        {1, 40, 0, 5, 0, TSR_ERR_UNSUPPORTED,
         "tokenizer: a tokenizer.model that does not write spaces as '\u2581' is not supported"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tsr_tokenizer *tokenizer = NULL;
        bytes file = model_file(cases[i].type, cases[i].training, cases[i].value,
                                cases[i].normalizer, cases[i].flag);
        ck_assert_int_eq(read_bytes(tsr__tokenizer_read_model, &file, &tokenizer), cases[i].status);
        ck_assert_str_eq(tsr_last_error(), cases[i].text);
        free(file.data);
    }
}
END_TEST

/* Folders -------------------------------------------------------------------------------------- */

START_TEST(a_folder_has_one_tokenizer)
{
    folder in = folder_create();
    char path[160], expected[512];
    tsr_tokenizer *tokenizer = NULL;
    bytes bin = llama2c_file();
    snprintf(expected, sizeof expected,
             "tokenizer: %s has no tokenizer.json, tokenizer.model or tok*.bin", in.path);
    ck_assert_error(tsr_tokenizer_open(in.path, &tokenizer), TSR_ERR_NOT_FOUND, expected);
    folder_write(&in, "tok7.bin", bin.data, bin.size, path);
    folder_write(&in, "model.bin", bin.data, bin.size, path);
    ck_assert_ok(tsr_tokenizer_open(in.path, &tokenizer));
    ck_assert_int_eq(tsr_tokenizer_size(tokenizer), 7);
    tsr_tokenizer_close(&tokenizer);
    folder_write(&in, "tokenizer.bin", bin.data, bin.size, path);
    snprintf(expected, sizeof expected, "tokenizer: %s has no tokenizer.json, and several tok*.bin",
             in.path);
    ck_assert_error(tsr_tokenizer_open(in.path, &tokenizer), TSR_ERR_INVALID, expected);
    folder_write(&in, "tokenizer.json", everything, sizeof everything - 1, path);
    folder_write(&in, "tokenizer_config.json", "{\"eos_token\":\"<t>\"}", 19, path);
    ck_assert_ok(tsr_tokenizer_open(in.path, &tokenizer));
    ck_assert_int_eq(tsr_tokenizer_size(tokenizer), 5);
    ck_assert_int_eq(info_of(tokenizer).eos, 4);
    ck_assert_int_eq(info_of(tokenizer).bos, 3);
    tsr_tokenizer_close(&tokenizer);
    for (uint64_t nth = 0;; nth++) {
        tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
        tsr_status status = tsr_tokenizer_open(in.path, &tokenizer);
        bool reached = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        ck_assert_int_eq(status, reached ? TSR_ERR_NO_MEMORY : TSR_OK);
        tsr_tokenizer_close(&tokenizer);
        if (!reached)
            break;
    }
    folder_write(&in, "tokenizer_config.json", "[]", 2, path);
    snprintf(expected, sizeof expected,
             "%s/tokenizer.json: tokenizer_config.json: offset 0: an object expected, not '['",
             in.path);
    ck_assert_error(tsr_tokenizer_open(in.path, &tokenizer), TSR_ERR_INVALID, expected);
    folder_write(&in, "x", "", 0, path);
    snprintf(expected, sizeof expected,
             "%s: tokenizer: offset 0: this is a file of no known format, not a tokenizer: a GGUF "
             "file, a tokenizer.json, a tokenizer.model of SentencePiece or a vocabulary of "
             "llama2.c",
             path);
    ck_assert_error(tsr_tokenizer_open(path, &tokenizer), TSR_ERR_INVALID, expected);
    folder_write(&in, "tok0.bin", "", 0, path);
    snprintf(expected, sizeof expected,
             "%s: tokenizer: offset 0: the file of 0 bytes ends within the length of the longest "
             "token",
             path);
    ck_assert_error(tsr_tokenizer_open(path, &tokenizer), TSR_ERR_INVALID, expected);
    folder_write(&in, "x.gguf", "", 0, path);
    snprintf(expected, sizeof expected,
             "%s: gguf: offset 0: the file of 0 bytes ends within the magic", path);
    ck_assert_error(tsr_tokenizer_open(path, &tokenizer), TSR_ERR_INVALID, expected);
    free(bin.data);
    folder_destroy(&in);
}
END_TEST

START_TEST(missing_arguments_are_refused)
{
    tsr_tokenizer *tokenizer = NULL;
    ck_assert_error(tsr_tokenizer_open(NULL, &tokenizer), TSR_ERR_INVALID,
                    "tokenizer: path is NULL");
    ck_assert_error(tsr_tokenizer_open("x", NULL), TSR_ERR_INVALID, "tokenizer: out is NULL");
    ck_assert_error(tsr_tokenizer_open("/proc/nonexistent", &tokenizer), TSR_ERR_NOT_FOUND,
                    "tokenizer: cannot open /proc/nonexistent: No such file or directory");
    ck_assert_error(tsr_tokenizer_open("/dev/null", &tokenizer), TSR_ERR_INVALID,
                    "tokenizer: /dev/null is not a regular file");
    tsr_tokenizer_close(NULL);
    tsr_tokenizer_close(&tokenizer);
}
END_TEST

TESTS(files)
{
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, a_wrong_gguf_file_is_refused, 0,
                        (int)(sizeof gguf_mistakes / sizeof *gguf_mistakes));
    tcase_add_test(tests, a_gguf_file_without_a_tokenizer_is_refused);
    tcase_add_test(tests, merges_of_unknown_tokens_are_refused);
    tcase_add_test(tests, gguf_files_may_end_anywhere);
    tcase_add_test(tests, other_types_of_ids_are_read);
    tcase_add_test(tests, llama2c_files_may_end_anywhere);
    tcase_add_test(tests, a_long_token_is_refused);
    tcase_add_loop_test(tests, a_wrong_tokenizer_json_is_refused, 0, JSON_MISTAKES);
    tcase_add_test(tests, split_at_a_replaced_string_changes_nothing);
    tcase_add_test(tests, replies_of_several_messages_have_an_end);
    tcase_add_test(tests, the_config_names_tokens);
    tcase_add_test(tests, tokenizer_json_may_end_anywhere);
    tcase_add_test(tests, a_tokenizer_model_is_read);
    tcase_add_test(tests, a_wrong_tokenizer_model_is_refused);
    tcase_add_test(tests, a_folder_has_one_tokenizer);
    tcase_add_test(tests, missing_arguments_are_refused);
}
