/* Tests conversions between Hugging Face folders and GGUF: compares tensors with files of other
 * programs, and tokenizers with recorded ids; tests what is left after a failure. */
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#ifndef _WIN32
#include <sys/resource.h>
#endif
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "model/convert/config.h"
#include "model/made.h"
#include "model/open.h"
#include "model/tiny.h"
#include "model/weights/files.h" /* must come before shard/files.h, which declares the type `bytes` */
#include "shard/files.h"
#include "shard/formats/gguf_metadata.h"
#include "shard/params/params.h"
#include "support/check_main.h"
#include "tessera/convert.h"
#include "tessera/model.h"
#include "tessera/shard.h"
#include "tokenizer/cases.h"
#include "tokenizer/info.h"
#include "tokenizer/tokenizer_write.h"

#define STORIES TEST_DATA "/model/stories260K"

static folder work;

static void open_work(void)
{
    work = folder_create();
}

static void close_work(void)
{
    folder_destroy(&work);
}

/* Returns the path of a file in the test's folder. The last four returned paths are valid. */
static const char *at(const char *name)
{
    static char paths[4][160];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, 160, "%s/%s", work.path, name);
    return path;
}

static void copy_file(const char *from, const char *to)
{
    char part[4096];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    ck_assert(in && out);
    for (size_t got; (got = fread(part, 1, sizeof part, in)) > 0;)
        ck_assert_uint_eq(fwrite(part, 1, got, out), got);
    fclose(in);
    ck_assert_int_eq(fclose(out), 0);
}

static void expect_nothing_in_work(void)
{
    DIR *entries = opendir(work.path);
    for (const struct dirent *entry; (entry = readdir(entries)) != NULL;)
        ck_assert_msg(entry->d_name[0] == '.', "%s is left", entry->d_name);
    closedir(entries);
}

/* Conversions of tensors ----------------------------------------------------------------------- */

static uint8_t *read_tensor(const char *path, const tsr_shard_param *p)
{
    char file_path[512];
    snprintf(file_path, sizeof file_path, "%s%s", path,
             strstr(path, ".gguf") ? "" : "/model.safetensors");
    FILE *file = fopen(file_path, "r");
    uint8_t *data = malloc(p->size_bytes + 1);
    ck_assert(file && data && fseek(file, (long)p->offset_bytes, SEEK_SET) == 0);
    ck_assert_uint_eq(fread(data, 1, p->size_bytes, file), p->size_bytes);
    fclose(file);
    return data;
}

static tsr_shard_list *open_list(const char *path)
{
    char file_path[512];
    tsr_shard_list *list = NULL;
    snprintf(file_path, sizeof file_path, "%s%s", path,
             strstr(path, ".gguf") ? "" : "/model.safetensors");
    ck_assert_ok(tsr_shard_list_open(file_path, &list));
    return list;
}

static bool same_shape(const tsr_shard_param *a, const tsr_shard_param *b)
{
    bool same = a->ndim == b->ndim;
    for (int i = 0; same && i < a->ndim; i++)
        same = a->shape[i] == b->shape[i];
    return same;
}

/* Compares the shapes and bytes of the tensors that have the same name and dtype in two files.
 * Returns their number. */
static int compare(const char *a_path, const char *b_path)
{
    tsr_shard_list *a = open_list(a_path), *b = open_list(b_path);
    int compared = 0;
    for (uint64_t i = 0; i < tsr_shard_list_param_count(a); i++)
        for (uint64_t j = 0; j < tsr_shard_list_param_count(b); j++) {
            const tsr_shard_param *p = tsr_shard_list_param(a, i), *q = tsr_shard_list_param(b, j);
            if (strcmp(p->name, q->name) != 0 || strcmp(p->dtype, q->dtype) != 0)
                continue;
            uint8_t *x = read_tensor(a_path, p), *y = read_tensor(b_path, q);
            ck_assert_msg(same_shape(p, q), "%s has another shape", p->name);
            ck_assert_msg(memcmp(x, y, p->size_bytes) == 0, "%s, %s: other bytes", p->name,
                          p->dtype);
            compared++;
            free(x);
            free(y);
        }
    tsr_shard_list_destroy(&a);
    tsr_shard_list_destroy(&b);
    return compared;
}

static void convert(const char *source, const char *destination, tsr_dtype type, uint64_t tensors)
{
    tsr_convert_stats stats = TSR_INIT(tsr_convert_stats);
    ck_assert_ok(convert_model(source, destination, tsr_convert_params(.dtype = type), &stats));
    ck_assert_uint_eq(stats.tensors, tensors);
}

/* llama.cpp's files have 47 tensors, 36 of which are matrices. 172 columns are not whole blocks, so
 * the five matrices ffn_down keep their type. */
START_TEST(stories_equal_the_recorded_files)
{
    convert(STORIES "-hf", at("f32.gguf"), 0, 47);
    ck_assert_int_eq(compare(at("f32.gguf"), STORIES "-f32.gguf"), 47);
    convert(STORIES "-hf", at("f16.gguf"), TSR_F16, 47);
    ck_assert_int_eq(compare(at("f16.gguf"), STORIES "-f16.gguf"), 47);
    convert(STORIES "-hf", at("bf16.gguf"), TSR_BF16, 47);
    ck_assert_int_eq(compare(at("bf16.gguf"), STORIES "-bf16.gguf"), 47);
    convert(STORIES "-hf", at("q8_0.gguf"), TSR_Q8_0, 47);
    ck_assert_int_ge(compare(at("q8_0.gguf"), STORIES "-q8_0mix.gguf"), 31 + 11);
    convert(STORIES "-hf", at("q4_0.gguf"), TSR_Q4_0, 47);
    ck_assert_int_ge(compare(at("q4_0.gguf"), STORIES "-q4_0mix.gguf"), 30 + 11);
}
END_TEST

/* Rows have 256 elements, a block of the K formats, so every matrix can have these formats. */
START_TEST(a_synthetic_model_equals_the_recorded_files)
{
    static const struct {
        tsr_dtype type;
        const char *recorded;
        int least;
    } cases[] = {{TSR_Q4_K, "q4_k_m", 10}, {TSR_Q6_K, "q4_k_m", 5}, {TSR_Q5_K, "q5_k_m", 10}};
    char recorded[512];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tsr_convert_stats stats = TSR_INIT(tsr_convert_stats);
        snprintf(recorded, sizeof recorded, TEST_DATA "/model/synth-A-%s.gguf", cases[i].recorded);
        ck_assert_ok(convert_model(TEST_DATA "/model/synth-A-f16.gguf", at("k.gguf"),
                                   tsr_convert_params(.dtype = cases[i].type, .replace = true),
                                   &stats));
        ck_assert_uint_eq(stats.kept, 0);
        const int compared = compare(at("k.gguf"), recorded);
        ck_assert_msg(compared >= cases[i].least, "%d tensors have the same type", compared);
    }
    /* If blocks keep their format, their bytes must not change. */
    tsr_convert_stats stats = TSR_INIT(tsr_convert_stats);
    snprintf(recorded, sizeof recorded, TEST_DATA "/model/synth-A-q4_k_m.gguf");
    ck_assert_ok(convert_model(recorded, at("copy.gguf"), NULL, &stats));
    ck_assert_int_eq(compare(at("copy.gguf"), recorded), (int)stats.tensors);
}
END_TEST

/* Compares every family with files that the test writes itself. */
START_TEST(families_there_and_back)
{
    for (int f = 0; f < made_family_count; f++) {
        made_model made;
        made_family family = made_families[f];
        char gguf[160], own[160], folder_path[160];
        if (family.scaling == MADE_LLAMA3)
            family.scaling = MADE_NONE;
        if (strcmp(family.type, "qwen2") == 0) {
            family.window = 0;
            family.json = "";
        }
        made_init(&made, &family, 5 + (uint64_t)f);
        const char *hf = made_write_hf(&made);
        snprintf(gguf, sizeof gguf, "%s/%d.gguf", work.path, f);
        snprintf(folder_path, sizeof folder_path, "%s/%d", work.path, f);
        ck_assert_ok(convert_model(hf, gguf, NULL, NULL));
        ck_assert_ok(convert_model(gguf, folder_path, NULL, NULL));
        /* Every tensor must come back after two conversions. GPT-2's files have one tensor for
         * q, k and v, which made.count counts as one. */
        ck_assert_int_eq(compare(hf, folder_path), made.count);
        snprintf(own, sizeof own, "%s", made_write_gguf(&made, 1));
        ck_assert_int_eq(compare(gguf, own), made.count);
        flat_config a, b;
        ck_assert_ok(read_flat(own, &a));
        ck_assert_ok(read_flat(folder_path, &b));
        ck_assert_str_eq(a.architecture, b.architecture);
        ck_assert(a.window == b.window && a.tied == b.tied && a.rope.scaling == b.rope.scaling);
        ck_assert_double_eq_tol(a.rope.attention_factor, b.rope.attention_factor, 1e-6);
        made_finish(&made);
    }
}
END_TEST

/* In GGUF files, the frequency divisors of Llama 3 are a tensor. */
START_TEST(llama_3)
{
    made_model made;
    made_family family = made_families[0];
    flat_config c;
    family.scaling = MADE_NONE;
    family.json = ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, "
                  "\"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
                  "\"original_max_position_embeddings\": 8192}, \"rope_theta\": 500000.0";
    made_init(&made, &family, 1);
    ck_assert_ok(convert_model(made_write_hf(&made), at("3.gguf"), NULL, NULL));
    ck_assert_ok(read_flat(at("3.gguf"), &c));
    ck_assert(c.rope.scaling == TSR_ROPE_SCALING_LLAMA3 && c.rope.factor == 8);
    ck_assert_ok(convert_model(at("3.gguf"), at("3"), NULL, NULL));
    ck_assert_ok(read_flat(at("3"), &c));
    ck_assert(c.rope.original_length == 8192 && c.rope.high_frequency_factor == 4);
    made_finish(&made);
}
END_TEST

/* Conversions of tokenizers -------------------------------------------------------------------- */

/* Writes a folder with a model of one layer of zeros, and a tokenizer. */
static const char *tiny(int vocabulary, const char *more, const char *tokenizer, const char *as)
{
    char path[160], from[512];
    const char *folder_path = at("tiny");
    tiny_model(folder_path, vocabulary, more);
    if (tokenizer) {
        snprintf(from, sizeof from, TEST_DATA "/tokenizer/%s", tokenizer);
        snprintf(path, sizeof path, "%.100s/%s", folder_path, as);
        copy_file(from, path);
    }
    return folder_path;
}

static void check_ids(const char *path, const char *golden)
{
    tsr_tokenizer *tokenizer = NULL;
    char cases_path[512];
    size_t cases = 0;
    ck_assert_ok(tsr_tokenizer_open(path, &tokenizer));
    snprintf(cases_path, sizeof cases_path, TEST_DATA "/tokenizer/%s.json", golden);
    ck_assert_int_eq(cases_check(tokenizer, cases_path, &cases), 0);
    ck_assert_uint_gt(cases, 1);
    tsr_tokenizer_close(&tokenizer);
}

/* Converts to GGUF, back to a folder, and to GGUF again. The model's vocabulary is larger than the
 * tokenizer's. */
START_TEST(tokenizers_travel)
{
    static const struct {
        const char *file, *as, *golden, *back;
    } cases[] = {
        {"stories260K.tok512.bin", "tok512.bin", "tok_stories260K", "back/tokenizer.model"},
        {"mini-gpt2.tokenizer.json", "tokenizer.json", "hf_mini-gpt2", "back/tokenizer.json"},
        {"mini-llama3.tokenizer.json", "tokenizer.json", "hf_mini-llama3", "back/tokenizer.json"},
    };
    tsr_tokenizer *a = NULL, *b = NULL;
    const char *source = tiny(1800, "", cases[_i].file, cases[_i].as);
    ck_assert_ok(convert_model(source, at("t.gguf"), NULL, NULL));
    check_ids(at("t.gguf"), cases[_i].golden);
    ck_assert_ok(convert_model(at("t.gguf"), at("back"), NULL, NULL));
    check_ids(at(cases[_i].back), cases[_i].golden);
    ck_assert_ok(convert_model(at("back"), at("again.gguf"), NULL, NULL));
    check_ids(at("again.gguf"), cases[_i].golden);
    ck_assert_int_eq(compare(at("t.gguf"), at("again.gguf")), 11);
    ck_assert_ok(tsr_tokenizer_open(source, &a));
    ck_assert_ok(tsr_tokenizer_open(at("back"), &b));
    ck_assert_int_eq(tsr_tokenizer_size(b), 1800);
    ck_assert_int_eq(info_of(a).bos, info_of(b).bos);
    ck_assert_int_eq(info_of(a).eos, info_of(b).eos);
    for (int32_t id = 0; id < tsr_tokenizer_size(a); id++) {
        ck_assert_int_eq(is_control(a, id), is_control(b, id));
        ck_assert_int_eq(tsr_tokenizer_is_end(a, id), tsr_tokenizer_is_end(b, id));
    }
    tsr_tokenizer_close(&a);
    tsr_tokenizer_close(&b);
}
END_TEST

static void put_json(FILE *file, const char *text)
{
    fputc('"', file);
    for (; *text != '\0'; text++)
        if (*text == '"' || *text == '\\')
            fprintf(file, "\\%c", *text);
        else if ((unsigned char)*text < ' ')
            fprintf(file, "\\u%04x", (unsigned)*text);
        else
            fputc(*text, file);
    fputc('"', file);
}

/* Writes the merges that give one token: all pairs of tokens that together are its text. */
static void put_merges(FILE *file, const tsr_tokenizer *t, int32_t id, bool *first)
{
    const char *text;
    size_t size;
    ck_assert_ok(spelling_of(t, id, &text, &size));
    for (size_t cut = 1; cut < size; cut++) {
        char left[64], right[64];
        if (tsr_tokenizer_find(t, text, cut) < 0 ||
            tsr_tokenizer_find(t, text + cut, size - cut) < 0)
            continue;
        snprintf(left, sizeof left, "%.*s", (int)cut, text);
        snprintf(right, sizeof right, "%s", text + cut);
        fputs(*first ? "[" : ",[", file);
        put_json(file, left);
        fputc(',', file);
        put_json(file, right);
        fputc(']', file);
        *first = false;
    }
}

static const char *word(bool flag)
{
    return flag ? "true" : "false";
}

/* Writes a tokenizer.json with the merges that follow from the scores, as Hugging Face converts
 * such tokenizers. It has one more token, <|im_end|>; `added` are further entries of its list of
 * added tokens. If not `complete`, the merges that give the first merged token are left out. With
 * `strips`, tokens include the spaces after them, and "</s>" is text, as in files of Phi-3. */
static void write_json(const char *path, const tsr_tokenizer *t, bool complete, bool strips,
                       const char *added)
{
    const int32_t count = tsr_tokenizer_size(t);
    FILE *file = fopen(path, "w");
    bool first = true;
    const char *text;
    size_t size;
    ck_assert_ptr_nonnull(file);
    fprintf(file, "{\"added_tokens\": [");
    for (int32_t id = 0; id < 3; id++) {
        ck_assert_ok(spelling_of(t, id, &text, &size));
        fprintf(file,
                "{\"id\": %d, \"content\": \"%s\", \"special\": %s, \"single_word\": false, "
                "\"lstrip\": false, \"rstrip\": %s, \"normalized\": false},",
                (int)id, text, word(!strips || id != 2), word(strips && id == 2));
    }
    fprintf(file,
            "{\"id\": %d, \"content\": \"<|im_end|>\", \"special\": true, \"single_word\": "
            "false, \"lstrip\": false, \"rstrip\": %s, \"normalized\": false}%s], "
            "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", "
            "\"prepend\": \"\u2581\"}, {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, "
            "\"content\": \"\u2581\"}]}, \"pre_tokenizer\": null, \"post_processor\": null, "
            "\"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", "
            "\"pattern\": {\"String\": \"\u2581\"}, \"content\": \" \"}, {\"type\": "
            "\"ByteFallback\"}, {\"type\": \"Fuse\"}, {\"type\": \"Strip\", \"content\": \" \", "
            "\"start\": 1, \"stop\": 0}]}, \"model\": {\"type\": \"BPE\", \"unk_token\": "
            "\"<unk>\", \"fuse_unk\": true, \"byte_fallback\": true, \"vocab\": {",
            (int)count, word(strips), added);
    for (int32_t id = 0; id < count; id++) {
        ck_assert_ok(spelling_of(t, id, &text, &size));
        fputs(id > 0 ? "," : "", file);
        put_json(file, text);
        fprintf(file, ": %d", (int)id);
    }
    fputs("}, \"merges\": [", file);
    /* In this vocabulary, higher ids have lower scores, so the merges are in the order of their
     * ranks. */
    for (int32_t id = complete ? 259 : 260; id < count; id++)
        put_merges(file, t, id, &first);
    fputs("]}}", file);
    ck_assert_int_eq(fclose(file), 0);
}

static void refuses(const char *source, const char *destination, const tsr_convert_params *params,
                    tsr_status status, const char *sentence)
{
    ck_assert_int_eq(convert_model(source, destination, params, NULL), status);
    ck_assert_msg(strstr(tsr_last_error(), sentence) != NULL, "'%s' has no '%s'", tsr_last_error(),
                  sentence);
}

/* Writes the text of a file in the folder "tiny". */
static void write_beside(const char *name, const char *text)
{
    char path[160];
    snprintf(path, sizeof path, "%s/tiny/%s", work.path, name);
    FILE *file = fopen(path, "w");
    ck_assert(file && fputs(text, file) >= 0);
    ck_assert_int_eq(fclose(file), 0);
}

/* Asserts that a file contains a text, or, if not `is_there`, that it does not. */
static void expect_in(const char *path, const char *text, bool is_there)
{
    static char data[1000000];
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    const size_t size = fread(data, 1, sizeof data, file), length = strlen(text);
    bool found = false;
    fclose(file);
    ck_assert_uint_lt(size, sizeof data);
    for (size_t i = 0; i + length <= size && !found; i++)
        found = memcmp(data + i, text, length) == 0;
    ck_assert_msg(found == is_there, "%s: '%s'", path, text);
}

/* The chat template is converted with the tokenizer, whichever file has it. */
START_TEST(chat_templates_travel)
{
    static const char *const tokenizers[][2] = {{"mini-llama3.tokenizer.json", "tokenizer.json"},
                                                {"stories260K.tok512.bin", "tok512.bin"}};
    const bool is_spm = _i == 1;
    const char *source = tiny(1800, "", tokenizers[_i][0], tokenizers[_i][1]);
    if (is_spm) { /* makes a folder with tokenizer.model, and calls it "tiny" */
        ck_assert_ok(convert_model(source, at("spm"), NULL, NULL));
        ck_assert_int_eq(rename(at("tiny"), at("other")), 0);
        ck_assert_int_eq(rename(at("spm"), at("tiny")), 0);
        source = at("tiny");
    }
    write_beside("tokenizer_config.json",
                 "{\"x\": [1], \"chat_template\": \"{{ \\\"a\\\" }}\\n<|x|>\", \"y\": 2}");
    ck_assert_ok(convert_model(source, at("t.gguf"), NULL, NULL));
    expect_in(at("t.gguf"), "{{ \"a\" }}\n<|x|>", true);
    ck_assert_ok(convert_model(at("t.gguf"), at("back"), NULL, NULL));
    expect_in(at("back/tokenizer_config.json"),
              "\"chat_template\": \"{{ \\\"a\\\" }}\\u000a<|x|>\"", true);
    ck_assert_ok(convert_model(at("back"), at("u.gguf"), NULL, NULL));
    expect_in(at("u.gguf"), "{{ \"a\" }}\n<|x|>", true);
    write_beside("chat_template.jinja", "{% newer %}");
    ck_assert_ok(convert_model(at("tiny"), at("v.gguf"), NULL, NULL));
    expect_in(at("v.gguf"), "{% newer %}", true);
    expect_in(at("v.gguf"), "<|x|>", false);
}
END_TEST

static void keep_note(void *user, const char *sentence)
{
    snprintf(user, 256, "%s", sentence);
}

/* The tokens that end a text are converted, with and without a tokenizer. */
START_TEST(end_tokens_travel)
{
    static const char more[] = ", \"bos_token_id\": 5, \"eos_token_id\": [7, 9, 11, 13]";
    flat_config c;
    char sentence[256] = "";
    const char *source =
        tiny(1800, more, _i == 1 ? "mini-gpt2.tokenizer.json" : NULL, "tokenizer.json");
    ck_assert_ok(convert_model(source, at("t.gguf"),
                               tsr_convert_params(.note = keep_note, .user = sentence), NULL));
    ck_assert_str_eq(sentence,
                     "GGUF files can name 3 tokens that end a text: token 13 is left out");
    ck_assert_ok(convert_model(at("t.gguf"), at("back"), NULL, NULL));
    ck_assert_ok(read_flat(at("back"), &c));
    ck_assert_int_eq(c.end_count, 3);
    ck_assert(c.end[0] == 7 && c.end[1] == 9 && c.end[2] == 11);
    ck_assert_int_eq(c.bos, 5);
}
END_TEST

/* Tests GPT-2 with the exact GELU, which examples/gpt writes. */
START_TEST(exact_gelu)
{
    made_model made;
    made_family family = made_families[5];
    flat_config c;
    char sentence[256] = "";
    family.json = ", \"activation_function\": \"gelu\"";
    made_init(&made, &family, 1);
    ck_assert_ok(convert_model(
        made_write_hf(&made), at("g.gguf"),
        tsr_convert_params(.weights_only = true, .note = keep_note, .user = sentence), NULL));
    ck_assert_str_eq(sentence, "the model has the exact GELU; programs other than tessera will "
                               "compute its approximation with tanh");
    ck_assert_ok(read_flat(at("g.gguf"), &c));
    ck_assert_int_eq(c.activation, TSR_ACT_GELU_ERF);
    ck_assert_ok(convert_model(at("g.gguf"), at("g"), NULL, NULL));
    ck_assert_ok(read_flat(at("g"), &c));
    ck_assert_int_eq(c.activation, TSR_ACT_GELU_ERF);
    made_finish(&made);
}
END_TEST

/* The weights may be in several files that an index names. Here, one file has all of them. */
START_TEST(an_index_is_followed)
{
    static const char *const names[] = {"norm",
                                        "embed_tokens",
                                        "layers.0.input_layernorm",
                                        "layers.0.self_attn.q_proj",
                                        "layers.0.self_attn.k_proj",
                                        "layers.0.self_attn.v_proj",
                                        "layers.0.self_attn.o_proj",
                                        "layers.0.post_attention_layernorm",
                                        "layers.0.mlp.gate_proj",
                                        "layers.0.mlp.up_proj",
                                        "layers.0.mlp.down_proj"};
    char index[2048] = "{\"weight_map\": {";
    const char *source = tiny(40, "", NULL, NULL);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        snprintf(index + strlen(index), sizeof index - strlen(index),
                 "%s\"model.%s.weight\": \"part.safetensors\"", i > 0 ? ", " : "", names[i]);
    strcat(index, "}}");
    ck_assert_int_eq(rename(at("tiny/model.safetensors"), at("tiny/part.safetensors")), 0);
    write_beside("model.safetensors.index.json", index);
    ck_assert_ok(convert_model(source, at("t.gguf"), NULL, NULL));
    ck_assert_ok(convert_model(at("t.gguf"), at("back"), NULL, NULL));
    ck_assert_int_eq(rename(at("tiny/part.safetensors"), at("tiny/model.safetensors")), 0);
    ck_assert_int_eq(compare(at("tiny"), at("back")), 11);
}
END_TEST

/* Writes part `number` of a GGUF file as llama.cpp's gguf-split does. The part has the tensors
 * number, number + count, …; the first part also has the metadata. */
static void write_gguf_part(const char *whole, const char *name, uint64_t number, uint64_t count)
{
    tsr__file file;
    ck_assert_ok(tsr__file_open(whole, &file));
    tsr__gguf gguf = {.file = &file};
    uint64_t tensors, keys;
    ck_assert_ok(tsr__gguf_head(&gguf, &tensors, &keys));
    const uint64_t keys_at = gguf.at;
    for (uint64_t i = 0; i < keys; i++) {
        uint32_t type;
        ck_assert_ok(tsr__gguf_name(&gguf, "key"));
        ck_assert_ok(tsr__gguf_u32(&gguf, "type", &type));
        ck_assert_ok(tsr__gguf_skip(&gguf, type));
    }
    char *metadata, *weights, path[160];
    ck_assert_ok(tsr__file_load(&file, keys_at, gguf.at - keys_at, "metadata", &metadata));
    tsr_shard_list *list = open_list(whole);
    const tsr_shard_param *params = tsr_shard_list_param(list, 0);
    bytes out = {0}, data = {0};
    put_gguf_head(&out, 3, (tensors - number + count - 1) / count, (number == 0 ? keys : 0) + 3);
    if (number == 0)
        put_bytes(&out, metadata, gguf.at - keys_at);
    const char *const names[] = {"split.no", "split.count", "split.tensors.count"};
    const uint64_t values[] = {number, count, tensors};
    for (int i = 0; i < 3; i++) {
        put_text(&out, names[i]);
        put_integer(&out, i < 2 ? 2 : TSR__GGUF_I32, 4);
        put_integer(&out, values[i], i < 2 ? 2 : 4);
    }
    for (uint64_t i = number; i < tensors; i += count) {
        uint32_t type;
        ck_assert(tsr__dtype_gguf_number(params[i].dtype, &type));
        put_text(&out, params[i].name);
        put_integer(&out, (uint64_t)params[i].ndim, 4);
        for (int d = params[i].ndim; d-- > 0;)
            put_integer(&out, (uint64_t)params[i].shape[d], 8);
        put_integer(&out, type, 4);
        put_integer(&out, data.size, 8);
        ck_assert_ok(tsr__file_load(&file, params[i].offset_bytes, params[i].size_bytes, "weights",
                                    &weights));
        put_bytes(&data, weights, params[i].size_bytes);
        put_zeros(&data, (32 - data.size % 32) % 32);
        tsr__free(weights);
    }
    put_zeros(&out, (32 - out.size % 32) % 32);
    put_bytes(&out, data.data, data.size);
    folder_write(&work, name, out.data, out.size, path);
    free(out.data);
    free(data.data);
    tsr__free(metadata);
    tsr_shard_list_destroy(&list);
    tsr__file_close(&file);
}

/* Checks the name of the model that a GGUF file has. */
static void check_name(const char *path, const char *wanted)
{
    tsr__file file;
    tsr__gguf_value value = {.key = "general.name"};
    char name[TSR_SHARD_MAX_NAME + 1];
    ck_assert_ok(tsr__file_open(path, &file));
    ck_assert_ok(tsr__gguf_find(&file, &value, 1));
    ck_assert(value.found);
    ck_assert_ok(tsr__gguf_name_of(&file, &value, name));
    tsr__file_close(&file);
    ck_assert_str_eq(name, wanted);
}

START_TEST(gguf_files_of_one_model)
{
    tsr_model_file *whole = NULL, *parts = NULL;
    const char *first = "m-00001-of-00003.gguf";
    write_gguf_part(STORIES "-q8_0mix.gguf", first, 0, 3);
    write_gguf_part(STORIES "-q8_0mix.gguf", "m-00002-of-00003.gguf", 1, 3);
    write_gguf_part(STORIES "-q8_0mix.gguf", "m-00003-of-00003.gguf", 2, 3);
    ck_assert_ok(tsr_model_file_open(STORIES "-q8_0mix.gguf", &whole));
    ck_assert_ok(tsr_model_file_open(at(first), &parts));
    ck_assert_ok(tsr__config_compare(tsr_model_file_config(whole), tsr_model_file_config(parts),
                                     "several files"));
    tsr_model_file_close(&whole);
    tsr_model_file_close(&parts);
    ck_assert_ok(convert_model(STORIES "-q8_0mix.gguf", at("whole"), NULL, NULL));
    ck_assert_ok(convert_model(at(first), at("parts"), NULL, NULL));
    ck_assert_int_gt(compare(at("whole"), at("parts")), 40);
    ck_assert_ok(convert_model(at(first), at("joined.gguf"), NULL, NULL));
    check_name(at("joined.gguf"), "m");
    char third[160];
    snprintf(third, sizeof third, "%s", at("m-00003-of-00003.gguf"));
    refuses(at(first), third, tsr_convert_params(.replace = true), TSR_ERR_INVALID,
            "m-00003-of-00003.gguf is the source");
    check_ids(at(first), "tok_stories260K");
    tsr_tokenizer *none = NULL;
    ck_assert_int_eq(tsr_tokenizer_open(at("m-00002-of-00003.gguf"), &none), TSR_ERR_NOT_FOUND);
    ck_assert_ptr_nonnull(
        strstr(tsr_last_error(), "; of a model in several files, the first one has it"));
}
END_TEST

/* tokenizer.json does not have the tokens' scores, and tokenizer.model does not have the added
 * tokens, so a conversion needs both files. */
START_TEST(scores_come_from_tokenizer_model)
{
    tsr_tokenizer *t = NULL;
    const char *source = tiny(513, "", "stories260K.tok512.bin", "tok512.bin");
    ck_assert_ok(tsr_tokenizer_open(source, &t));
    ck_assert_ok(convert_model(source, at("folder"), NULL, NULL));
    write_json(at("folder/tokenizer.json"), t, true, false, "");
    tsr_tokenizer_close(&t);
    check_ids(at("folder/tokenizer.model"), "tok_stories260K");
    ck_assert_ok(convert_model(at("folder"), at("t.gguf"), NULL, NULL));
    check_ids(at("t.gguf"), "tok_stories260K");
    ck_assert_ok(tsr_tokenizer_open(at("t.gguf"), &t));
    ck_assert_int_eq(tsr_tokenizer_find(t, "<|im_end|>", 10), 512);
    ck_assert(is_control(t, 512) && tsr_tokenizer_is_end(t, 512));
    tsr_tokenizer_close(&t);
    /* A tokenizer.json with other merges is refused. */
    ck_assert_ok(tsr_tokenizer_open(at("folder/tokenizer.model"), &t));
    write_json(at("folder/tokenizer.json"), t, false, false, "");
    tsr_tokenizer_close(&t);
    ck_assert_int_eq(convert_model(at("folder"), at("u.gguf"), NULL, NULL), TSR_ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(tsr_last_error(), "give different ids for "));
    /* A folder gets both files as they are. */
    ck_assert_ok(convert_model(at("folder"), at("copy"), NULL, NULL));
    check_ids(at("copy/tokenizer.model"), "tok_stories260K");
    ck_assert_ok(tsr_tokenizer_open(at("copy/tokenizer.json"), &t));
    tsr_tokenizer_close(&t);
}
END_TEST

/* Only tokenizer.json says which tokens are added, and how they are searched. Token 260 is
 * "he" in both files. */
START_TEST(added_tokens_come_from_tokenizer_json)
{
    static const struct {
        const char *added, *sentence; /* the sentence of a refusal, or NULL */
    } cases[] = {
        {", {\"id\": 260, \"content\": \"he\"}", NULL},
        {", {\"id\": 513, \"content\": \"<l>\", \"lstrip\": true}",
         "tokenizer: tokenizer.model cannot say that added token '<l>' includes the spaces beside "
         "it"},
        {", {\"id\": 513, \"content\": \"<w>\", \"single_word\": true}",
         "tokenizer: tokenizer.model cannot say that added token '<w>' is a single word"},
        {", {\"id\": 0, \"content\": \"<unk>\"}",
         "tokenizer: token 0, '<unk>', is a control token in tokenizer.model and an added one in "
         "tokenizer.json"},
    };
    static const octets text = {.data = "here", .size = 4};
    tsr_tokenizer *t = NULL, *back = NULL;
    int32_t *ids = NULL;
    uint64_t count = 0;
    const char *source = tiny(600, "", "stories260K.tok512.bin", "tok512.bin");
    ck_assert_ok(tsr_tokenizer_open(source, &t));
    ck_assert_ok(convert_model(source, at("folder"), NULL, NULL));
    write_json(at("folder/tokenizer.json"), t, true, false, cases[_i].added);
    tsr_tokenizer_close(&t);
    const tsr_status status = convert_model(at("folder"), at("t.gguf"), NULL, NULL);
    if (cases[_i].sentence) {
        ck_assert_int_eq(status, TSR_ERR_UNSUPPORTED);
        ck_assert_msg(strstr(tsr_last_error(), cases[_i].sentence) != NULL, "%s", tsr_last_error());
        return;
    }
    ck_assert_ok(status);
    ck_assert_ok(tsr_tokenizer_open(at("folder/tokenizer.json"), &t));
    ck_assert_ok(tsr_tokenizer_open(at("t.gguf"), &back));
    ck_assert_ok(tsr_tokenizer_encode(t, text.data, text.size,
                                      tsr_encode_params(.add = TSR_ENCODE_ADD_NONE), &ids, &count));
    ck_assert_int_eq(ids[0], 260);
    ck_assert(cases_encodes(back, "t.gguf", &text, tsr_encode_params(.add = TSR_ENCODE_ADD_NONE),
                            ids, count));
    tsr_tokenizer_free_ids(&ids);
    tsr_tokenizer_close(&t);
    tsr_tokenizer_close(&back);
}
END_TEST

#define END_OF_TEXT ", {\"id\": 513, \"content\": \"<|endoftext|>\", \"special\": true}"

static const char *phi3_folder(const char *added)
{
    tsr_tokenizer *t = NULL;
    const char *source = tiny(600, "", "stories260K.tok512.bin", "tok512.bin");
    ck_assert_ok(tsr_tokenizer_open(source, &t));
    ck_assert_ok(convert_model(source, at("folder"), NULL, NULL));
    write_json(at("folder/tokenizer.json"), t, true, true, added);
    tsr_tokenizer_close(&t);
    return at("folder");
}

/* No key of GGUF says that added tokens include the spaces after them; a name of the model that
 * contains "phi-3" or "phi3" says it. */
START_TEST(tokens_of_phi3_include_spaces)
{
    static const octets text = {.data = "a<|im_end|> \n b</s> c<|endoftext|> d <s> e", .size = 42};
    const tsr_encode_params *how =
        tsr_encode_params(.add = TSR_ENCODE_ADD_NONE, .control = TSR_ENCODE_CONTROL_TOKEN);
    char source[160];
    snprintf(source, sizeof source, "%s", phi3_folder(END_OF_TEXT));
    const char *files[] = {"t.gguf", "again.gguf"};
    tsr_tokenizer *t = NULL;
    int32_t *ids = NULL;
    uint64_t count = 0;
    ck_assert_ok(tsr_tokenizer_open(source, &t));
    ck_assert_ok(tsr_tokenizer_encode(t, text.data, text.size, how, &ids, &count));
    tsr_tokenizer_close(&t);
    ck_assert_ok(convert_model(source, at(files[0]), NULL, NULL));
    ck_assert_ok(convert_model(at(files[0]), at(files[1]), NULL, NULL));
    check_name(at(files[0]), "phi-3 folder");
    check_name(at(files[1]), "phi-3 t");
    for (int i = 0; i < 2; i++) {
        ck_assert_ok(tsr_tokenizer_open(at(files[i]), &t));
        ck_assert(cases_encodes(t, files[i], &text, how, ids, count));
        tsr_tokenizer_close(&t);
    }
    tsr_tokenizer_free_ids(&ids);
    refuses(at(files[0]), at("back"), NULL, TSR_ERR_UNSUPPORTED,
            "tokenizer.model cannot say that added token '</s>' includes the spaces beside it");
    /* If the added tokens of a model with such a name do not include spaces, the new file must have
     * another name. */
    copy_file(STORIES "-q8_0mix.gguf", at("my-Phi3.gguf"));
    ck_assert_ok(convert_model(at("my-Phi3.gguf"), at("plain.gguf"), NULL, NULL));
    check_name(at("plain.gguf"), "model");
}
END_TEST

START_TEST(other_tokens_that_include_spaces_are_refused)
{
    static const struct {
        const char *added, *sentence;
    } cases[] = {
        {"", "of a vocabulary with <|endoftext|>"},
        {END_OF_TEXT ", {\"id\": 514, \"content\": \"<x>\"}",
         "tokenizer: GGUF files cannot say that added token '<x>' does not include the spaces "
         "after it, and that others do"},
        {", {\"id\": 513, \"content\": \"<|endoftext|>\", \"rstrip\": true}",
         "tokenizer: GGUF files cannot say that added token '<|endoftext|>' includes the spaces "
         "after it, and that others do not"},
    };
    const char *source = phi3_folder(cases[_i].added);
    refuses(source, at("t.gguf"), NULL, TSR_ERR_UNSUPPORTED, cases[_i].sentence);
}
END_TEST

/* Byte-level BPE in tokenizer.json. The %s are its normaliser, a word of its decoder, whether it
 * has byte_fallback, and further entries of its list of added tokens. */
static const char byte_level[] =
    "{\"added_tokens\": [{\"id\": 8, \"content\": \"<l>\", \"lstrip\": true, \"special\": true}, "
    "{\"id\": 9, \"content\": \"<r>\", \"rstrip\": true}, "
    "{\"id\": 10, \"content\": \"<w>\", \"single_word\": true}, "
    "{\"id\": 11, \"content\": \"e\u0301\", \"normalized\": true}%s], \"normalizer\": %s, "
    "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}, "
    "\"post_processor\": null, \"decoder\": {\"type\": \"Sequence\", \"decoders\": "
    "[{\"type\": \"ByteLevel\"}%s]}, \"model\": {\"type\": \"BPE\", \"unk_token\": \"<u>\", "
    "\"fuse_unk\": true, \"byte_fallback\": %s, \"vocab\": {\"a\": 0, \"\u0120\": 1, "
    "\"b\": 2, \"<\": 3, \">\": 4, \"w\": 5, \"<u>\": 6, \"<0x41>\": 7}, \"merges\": []}}";

static const char *write_byte_level(const char *added, const char *normalizer, const char *decoder,
                                    const char *fallback)
{
    char json[2000];
    const char *source = tiny(40, "", NULL, NULL);
    ck_assert_int_lt(snprintf(json, sizeof json, byte_level, added, normalizer, decoder, fallback),
                     2000);
    write_beside("tokenizer.json", json);
    return source;
}

/* Writes the tokenizer of a folder as a tokenizer.json of the library's own. */
static tsr_status save_json(const char *source, const char *path)
{
    tsr_tokenizer *t = NULL;
    char *text = NULL;
    size_t size = 0;
    ck_assert_ok(tsr_tokenizer_open(source, &t));
    const tsr_status status = tsr__tokenizer_save_json(t, &text, &size);
    tsr_tokenizer_close(&t);
    if (status == TSR_OK) {
        FILE *file = fopen(path, "wb");
        ck_assert_ptr_nonnull(file);
        ck_assert_uint_eq(fwrite(text, 1, size, file), size);
        ck_assert_int_eq(fclose(file), 0);
    }
    tsr__free(text);
    return status;
}

/* tokenizer.json keeps how added tokens are searched. */
START_TEST(added_tokens_travel)
{
    static const octets text = {.data = "a <l> b<r>  a<w>a <w> \u00e9e\u0301", .size = 27};
    static const int32_t ids[] = {0, 8, 1, 2, 9, 0, 3, 5, 4, 0, 1, 10, 1, 11, 11};
    const char *source = write_byte_level("", "{\"type\": \"NFC\"}", "", "false");
    ck_assert_ok(save_json(source, at("saved.json")));
    const char *paths[] = {source, at("saved.json")};
    for (int i = 0; i < 2; i++) {
        tsr_tokenizer *t = NULL;
        ck_assert_ok(tsr_tokenizer_open(paths[i], &t));
        ck_assert(cases_encodes(t, paths[i], &text,
                                tsr_encode_params(.control = TSR_ENCODE_CONTROL_TOKEN), ids,
                                sizeof ids / sizeof *ids));
        tsr_tokenizer_close(&t);
    }
    expect_in(at("saved.json"), "\"fuse_unk\": true", true);
}
END_TEST

START_TEST(byte_level_tokenizers_are_refused)
{
    static const char nfc[] = "{\"type\": \"NFC\"}";
    static const struct {
        const char *added, *normalizer, *decoder, *fallback, *sentence;
    } cases[] = {
        {"", nfc, ", {\"type\": \"Strip\", \"content\": \" \", \"start\": 1}", "false",
         "tokenizer: tokenizer.json cannot say that decoding removes a space at the start"},
        {"", nfc, "", "true",
         "tokenizer: tokenizer.json cannot say that tokens are spelled <0x00> to <0xFF>, beside "
         "the byte-level alphabet (byte_fallback)"},
        {", {\"id\": 12, \"content\": \"\u00e9\", \"normalized\": true}", nfc, "", "false",
         "tokenizer: tokenizer.json cannot say which of two added tokens is searched, whose "
         "normalised texts are the same"},
        {", {\"id\": 8, \"content\": \"<l>\", \"normalized\": true}", nfc, "", "false",
         "tokenizer: tokenizer.json cannot say that an added token is searched in two ways"},
        {"", "{\"type\": \"NFKC\"}", "", "false",
         "tokenizer: tokenizer.json cannot say how the text is normalised"},
    };
    const char *source = write_byte_level(cases[_i].added, cases[_i].normalizer, cases[_i].decoder,
                                          cases[_i].fallback);
    ck_assert_int_eq(save_json(source, at("saved.json")), TSR_ERR_UNSUPPORTED);
    ck_assert_str_eq(tsr_last_error(), cases[_i].sentence);
}
END_TEST

/* Byte-level BPE with the expression of GPT-4o and ignore_merges, as gpt-oss has it. The %s are
 * further entries of the vocabulary. */
static const char gpt4o[] =
    "{\"added_tokens\": [], \"normalizer\": null, \"pre_tokenizer\": {\"type\": \"Sequence\", "
    "\"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": "
    "\"[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*"
    "[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+"
    "[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    "\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|\\\\s*[\\\\r\\\\n]+|"
    "\\\\s+(?!\\\\S)|\\\\s+\"}, \"behavior\": \"Isolated\"}, {\"type\": \"ByteLevel\", "
    "\"add_prefix_space\": false, \"use_regex\": false}]}, \"post_processor\": null, \"decoder\": "
    "{\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", \"ignore_merges\": true, \"vocab\": "
    "{\"a\": 0, \"b\": 1, \"ab\": 2, \"B\": 3%s}, \"merges\": [\"a b\"]}}";

static const char *write_gpt4o(const char *vocabulary)
{
    char json[2000];
    const char *source = tiny(40, "", NULL, NULL);
    ck_assert_int_lt(snprintf(json, sizeof json, gpt4o, vocabulary), 2000);
    write_beside("tokenizer.json", json);
    return source;
}

/* GGUF's name for the expression means that words are merged. This changes no ids if merging makes
 * all tokens. */
START_TEST(words_by_classes_travel)
{
    static const octets text = {.data = "abBab", .size = 5};
    static const int32_t ids[] = {2, 3, 2};
    char to_gguf[256] = "", to_folder[256] = "";
    const char *source = write_gpt4o("");
    ck_assert_ok(convert_model(source, at("t.gguf"),
                               tsr_convert_params(.note = keep_note, .user = to_gguf), NULL));
    ck_assert_str_eq(to_gguf, "GGUF files cannot say that words end between small and capital "
                              "letters outside ASCII: such words get other tokens");
    expect_in(at("t.gguf"), "gpt-4o", true);
    ck_assert_ok(convert_model(at("t.gguf"), at("back"),
                               tsr_convert_params(.note = keep_note, .user = to_folder), NULL));
    ck_assert_str_eq(to_folder, "in tokenizer.json, words also end between small and capital "
                                "letters outside ASCII: such words get other tokens");
    const char *paths[] = {source, at("t.gguf"), at("back")};
    for (int i = 0; i < 3; i++) {
        tsr_tokenizer *t = NULL;
        ck_assert_ok(tsr_tokenizer_open(paths[i], &t));
        ck_assert(cases_encodes(t, paths[i], &text, NULL, ids, 3));
        tsr_tokenizer_close(&t);
    }
}
END_TEST

START_TEST(whole_words_that_merging_does_not_make_are_refused)
{
    refuses(write_gpt4o(", \"bab\": 4"), at("t.gguf"), NULL, TSR_ERR_UNSUPPORTED,
            "tokenizer: GGUF files cannot say how words are cut (gpt-4o, with ignore_merges)");
}
END_TEST

/* A norm in a block format, as a damaged file may say. */
START_TEST(vectors_of_blocks_are_refused)
{
    static const char name[] = "output_norm.weight";
    enum { NAME = sizeof name - 1 };
    tsr__file file;
    char *text, path[160];
    uint64_t found = 0;
    ck_assert_ok(tsr__file_open(STORIES "-f32.gguf", &file));
    ck_assert_ok(tsr__file_load(&file, 0, file.size, "the file", &text));
    while (found + NAME + 16 <= file.size && memcmp(text + found, name, NAME) != 0)
        found++;
    /* The type follows the number of dimensions and the only dimension. */
    ck_assert_int_eq(text[found + NAME], 1);
    ck_assert_int_eq(text[found + NAME + 12], 0);
    text[found + NAME + 12] = 8;
    folder_write(&work, "v.gguf", text, file.size, path);
    refuses(path, at("folder"), NULL, TSR_ERR_UNSUPPORTED,
            "model: tensor output_norm.weight is q8_0, a block format; vectors must be floats");
    tsr__free(text);
    tsr__file_close(&file);
}
END_TEST

/* What the other format cannot express ------------------------------------------------------- */

START_TEST(configurations_are_refused)
{
    static const struct {
        const char *more, *sentence;
    } cases[] = {
        {", \"hidden_act\": \"gelu\"",
         "convert: a GGUF file cannot say that the activation (see tsr_activation) is 3"},
        {", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 2, "
         "\"original_max_position_embeddings\": 8192}",
         "rope_freqs.weight is not the scaling of Llama 3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *source = tiny(40, cases[i].more, NULL, NULL);
        refuses(source, at("t.gguf"), NULL, TSR_ERR_UNSUPPORTED, cases[i].sentence);
        tests_remove(source);
        expect_nothing_in_work();
    }
    made_model made;
    made_init(&made, &made_families[3], 1);
    refuses(made_write_hf(&made), at("q.gguf"), NULL, TSR_ERR_UNSUPPORTED,
            "convert: a GGUF file cannot say that the sliding window is 6; it would be read as 0");
    made_finish(&made);
    expect_nothing_in_work();
}
END_TEST

START_TEST(tokenizers_are_refused)
{
    const char *source = tiny(2048, "", "TinyStories-656K.tokenizer.json", "tokenizer.json");
    refuses(source, at("t.gguf"), NULL, TSR_ERR_UNSUPPORTED,
            "tokenizer: tokenizer.json has merges of characters without the scores that GGUF files "
            "need; the model's tokenizer.model has them");
    ck_assert_ok(
        convert_model(source, at("t.gguf"), tsr_convert_params(.weights_only = true), NULL));
    tsr_tokenizer *tokenizer = NULL;
    ck_assert_int_eq(tsr_tokenizer_open(at("t.gguf"), &tokenizer), TSR_ERR_NOT_FOUND);
}
END_TEST

/* Writes a tokenizer like Gemma 4's, with all bytes from id 3 on. */
static const char *gemma_json(void)
{
    static char json[16384];
    size_t at = 0;
#define PUT(...) at += (size_t)snprintf(json + at, sizeof json - at, __VA_ARGS__)
    PUT("{\"added_tokens\": [{\"id\": 2, \"content\": \"<bos>\", \"special\": true}], "
        "\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, "
        "\"content\": \"\u2581\"}, \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": "
        "{\"String\": \" \"}, \"behavior\": \"MergedWithPrevious\", \"invert\": false}, "
        "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": "
        "{\"id\": \"<bos>\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], "
        "\"pair\": [], \"special_tokens\": {\"<bos>\": {\"id\": \"<bos>\", \"ids\": [2], "
        "\"tokens\": [\"<bos>\"]}}}, \"decoder\": {\"type\": \"Sequence\", \"decoders\": "
        "[{\"type\": \"Replace\", \"pattern\": {\"String\": \"\u2581\"}, \"content\": \" \"}, "
        "{\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}]}, \"model\": {\"type\": \"BPE\", "
        "\"unk_token\": \"<unk>\", \"fuse_unk\": true, \"byte_fallback\": true, \"vocab\": "
        "{\"<pad>\": 0, \"<unk>\": 1, \"<bos>\": 2");
    for (int i = 0; i < 256; i++)
        PUT(", \"<0x%02X>\": %d", (unsigned)i, 3 + i);
    static const char *const more[] = {"\u2581", "a", "b", "\\n", "\\n\\n", "\u2581a", "ab"};
    for (int i = 0; i < 7; i++)
        PUT(", \"%s\": %d", more[i], 259 + i);
    PUT("}, \"merges\": [[\"\\n\", \"\\n\"], [\"\u2581\", \"a\"], [\"a\", \"b\"]]}}");
#undef PUT
    return json;
}

/* GGUF files call it "gemma4". */
START_TEST(a_tokenizer_of_gemma_4)
{
    static const int32_t ids[] = {2, 264, 261, 259, 259, 3 + 0xc3, 3 + 0xa9, 263, 262, 265};
    const octets text = {.data = (char[]){" ab  \u00e9\n\n\nab"}, .size = 12};
    const char *json = gemma_json();
    char path[160];
    const char *source = tiny(266, "", NULL, NULL);
    folder in;
    ck_assert_int_lt(snprintf(in.path, sizeof in.path, "%.60s", source), 64);
    folder_write(&in, "tokenizer.json", json, strlen(json), path);
    ck_assert_ok(convert_model(source, at("t.gguf"), NULL, NULL));
    ck_assert_ok(convert_model(at("t.gguf"), at("back"), NULL, NULL));
    const char *paths[] = {source, at("t.gguf"), at("back")};
    for (int i = 0; i < 3; i++) {
        tsr_tokenizer *t = NULL;
        ck_assert_ok(tsr_tokenizer_open(paths[i], &t));
        ck_assert(cases_encodes(t, paths[i], &text, NULL, ids, 10));
        ck_assert(cases_decodes(t, paths[i], ids, 10, TSR_DECODE_CONTROL_SKIP, &text));
        ck_assert_int_eq(info_of(t).bos, i == 0 ? info_of(t).bos : 2);
        tsr_tokenizer_close(&t);
    }
}
END_TEST

/* Tests a tokenizer as examples/gpt writes it, in which each token is a character. */
START_TEST(a_tokenizer_of_characters)
{
    static const char json[] =
        "{\"added_tokens\": [], \"normalizer\": null, \"pre_tokenizer\": null, "
        "\"post_processor\": null, \"decoder\": {\"type\": \"Fuse\"}, \"model\": {\"type\": "
        "\"BPE\", \"unk_token\": null, \"vocab\": {\"\\n\": 0, \" \": 1, \"a\": 2, \"\u00e9\": 3, "
        "\"b\": 4}, \"merges\": []}}";
    static const int32_t ids[] = {2, 1, 1, 4, 3, 0, 1, 2};
    const octets text = {.data = (char[]){"a  b\u00e9\n a"}, .size = 9};
    char path[160];
    const char *source = tiny(7, "", NULL, NULL);
    folder in;
    ck_assert_int_lt(snprintf(in.path, sizeof in.path, "%.60s", source), 64);
    folder_write(&in, "tokenizer.json", json, strlen(json), path);
    ck_assert_ok(convert_model(source, at("t.gguf"), NULL, NULL));
    ck_assert_ok(convert_model(at("t.gguf"), at("back"), NULL, NULL));
    folder_write(&in, "chat_template.jinja", "{{ messages }}", 14, path);
    ck_assert_ok(convert_model(in.path, at("copy"), NULL, NULL));
    expect_in(at("copy/tokenizer.json"), json, true);
    expect_in(at("copy/chat_template.jinja"), "{{ messages }}", true);
    const char *paths[] = {source, at("t.gguf"), at("back")};
    for (int i = 0; i < 3; i++) {
        tsr_tokenizer *t = NULL;
        ck_assert_ok(tsr_tokenizer_open(paths[i], &t));
        ck_assert(cases_encodes(t, paths[i], &text, NULL, ids, 8));
        ck_assert(cases_decodes(t, paths[i], ids, 8, TSR_DECODE_CONTROL_SKIP, &text));
        ck_assert(info_of(t).bos < 0 && info_of(t).eos < 0);
        ck_assert_int_lt(info_of(t).unknown, 0);
        tsr_tokenizer_close(&t);
    }
}
END_TEST

START_TEST(a_vocabulary_that_is_too_small)
{
    refuses(tiny(500, "", "stories260K.tok512.bin", "tok512.bin"), at("t.gguf"), NULL,
            TSR_ERR_INVALID, "tokenizer: it has 512 tokens, but the model only 500");
}
END_TEST

/* Refused calls and failures ------------------------------------------------------------------- */

START_TEST(destinations_are_checked)
{
    refuses(NULL, at("x"), NULL, TSR_ERR_INVALID, "convert: source is NULL");
    refuses(at("nothing"), at("x"), NULL, TSR_ERR_NOT_FOUND, "nothing");
    refuses(STORIES "-f32.gguf", at("x"), tsr_convert_params(.dtype = TSR_Q8_0),
            TSR_ERR_UNSUPPORTED,
            "convert: a folder of Hugging Face cannot have weights of type q8_0");
    refuses(STORIES "-f32.gguf", at("x.gguf"), tsr_convert_params(.dtype = TSR_IQ4_NL),
            TSR_ERR_UNSUPPORTED, "convert: weights cannot be written as iq4_nl");
    refuses(STORIES "-f32.gguf", at("no/folder.gguf"), NULL, TSR_ERR_IO, "No such file");
    static const char *const others[] = {"x.xyz", "x.GGUF", "a.b/x.safetensors", "x-2.5.v1"};
    for (int i = 0; i < 4; i++)
        refuses(STORIES "-f32.gguf", at(others[i]), NULL, TSR_ERR_INVALID,
                "; files have .gguf, and folders no extension or a / at the end");
    expect_nothing_in_work();
    ck_assert_ok(convert_model(STORIES "-f32.gguf", at("a.gguf"), NULL, NULL));
    refuses(STORIES "-f32.gguf", at("a.gguf"), NULL, TSR_ERR_INVALID, "a.gguf exists");
#ifndef _WIN32 /* Windows has no symbolic links here */
    char link[512];
    snprintf(link, sizeof link, "%s/link.gguf", work.path);
    ck_assert_int_eq(symlink(at("a.gguf"), link), 0);
    refuses(at("a.gguf"), link, tsr_convert_params(.replace = true), TSR_ERR_INVALID,
            "link.gguf is the source");
#endif
    static const char *const folders[] = {"x.xyz/", "x-2.5B", "x-3.1", ".x"};
    for (int i = 0; i < 4; i++) {
        flat_config config;
        ck_assert_ok(convert_model(at("a.gguf"), at(folders[i]), NULL, NULL));
        ck_assert_ok(read_flat(at(folders[i]), &config));
    }
    refuses(at("a.gguf"), at("x.xyz"), NULL, TSR_ERR_INVALID, "x.xyz exists");
    ck_assert_ok(convert_model(at("a.gguf"), at("folder/"), NULL, NULL));
    refuses(at("folder"), at("folder"), tsr_convert_params(.replace = true), TSR_ERR_INVALID,
            "is the source");
    refuses(at("a.gguf"), at("folder"), NULL, TSR_ERR_INVALID, "folder exists");
    refuses(at("folder"), work.path, NULL, TSR_ERR_INVALID, "exists");
    /* Files of an earlier conversion are replaced or removed, and other files stay. */
    copy_file(TEST_DATA "/model/README.md", at("folder/README.md"));
    copy_file(TEST_DATA "/tokenizer/mini-gpt2.tokenizer.json", at("folder/tokenizer.json"));
    ck_assert_ok(convert_model(at("a.gguf"), at("folder"),
                               tsr_convert_params(.dtype = TSR_F16, .replace = true), NULL));
    ck_assert_int_eq(access(at("folder/README.md"), R_OK), 0);
    ck_assert_int_ne(access(at("folder/tokenizer.json"), R_OK), 0);
    check_ids(at("folder"), "tok_stories260K");
}
END_TEST

static bool stop(void *user, uint64_t done, uint64_t total)
{
    int *calls = user;
    ck_assert(done <= total && total > 1000000);
    return ++*calls < 5;
}

START_TEST(a_conversion_that_stops_leaves_nothing)
{
    int calls = 0;
    refuses(STORIES "-f32.gguf", at("a.gguf"), tsr_convert_params(.progress = stop, .user = &calls),
            TSR_ERR_IO, "convert: stopped after ");
    expect_nothing_in_work();
    calls = 0;
    refuses(STORIES "-f32.gguf", at("a"), tsr_convert_params(.progress = stop, .user = &calls),
            TSR_ERR_IO, "convert: stopped after ");
    expect_nothing_in_work();
}
END_TEST

#ifndef _WIN32 /* Windows has no limits on file sizes */
START_TEST(a_full_disk_is_an_error)
{
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){200000, 200000}), 0);
    refuses(STORIES "-f32.gguf", at("a.gguf"), NULL, TSR_ERR_IO, "bytes long: File too large");
    refuses(STORIES "-f32.gguf", at("a"), NULL, TSR_ERR_IO, "bytes long: File too large");
    expect_nothing_in_work();
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){4000, 200000}), 0);
    refuses(STORIES "-f32.gguf", at("a"), NULL, TSR_ERR_IO, "cannot write tokenizer.model");
    expect_nothing_in_work();
}
END_TEST
#endif

/* Writes a model whose last element has this value. */
static const char *with_element(float value)
{
    const char *source = tiny(40, "", NULL, NULL);
    FILE *file = fopen(at("tiny/model.safetensors"), "r+");
    ck_assert(file && fseek(file, -4, SEEK_END) == 0);
    ck_assert_uint_eq(fwrite(&value, sizeof value, 1, file), 1);
    ck_assert_int_eq(fclose(file), 0);
    return source;
}

START_TEST(elements_that_a_type_cannot_hold)
{
    const char *source = with_element(70000);
    refuses(source, at("a.gguf"), tsr_convert_params(.dtype = TSR_F16), TSR_ERR_INVALID,
            "convert: tensor blk.0.ffn_down.weight, row 31: 70000 is too large for f16");
    ck_assert_ok(convert_model(source, at("a.gguf"), tsr_convert_params(.dtype = TSR_BF16), NULL));
}
END_TEST

START_TEST(elements_that_are_no_numbers)
{
    refuses(with_element(NAN), at("a.gguf"), tsr_convert_params(.dtype = TSR_Q8_0), TSR_ERR_INVALID,
            "convert: tensor blk.0.ffn_down.weight, from row 0: quantize: element 1023 is NaN");
}
END_TEST

static void count_note(void *user, const char *sentence)
{
    ck_assert_msg(*sentence != '\0', "an empty sentence");
    ++*(int *)user;
}

START_TEST(matrices_that_keep_their_type_are_counted)
{
    tsr_convert_stats stats = TSR_INIT(tsr_convert_stats);
    int notes = 0;
    ck_assert_ok(convert_model(
        STORIES "-f32.gguf", at("a.gguf"),
        tsr_convert_params(.dtype = TSR_Q8_0, .note = count_note, .user = &notes), &stats));
    ck_assert_uint_eq(stats.kept, 5);
    ck_assert_int_eq(notes, 2);
    ck_assert_uint_gt(stats.read_bytes, 1000000);
    struct stat info;
    ck_assert_int_eq(stat(at("a.gguf"), &info), 0);
    ck_assert_uint_eq(stats.written_bytes, (uint64_t)info.st_size);
}
END_TEST

/* Mixtures ------------------------------------------------------------------------------------- */

typedef struct mixed_model {
    const char *type, *more;
    int layers, heads, kv_heads, head_dim, experts;
    bool tied;
} mixed_model;

/* A header of safetensors that is being written. */
typedef struct mixed_header {
    char *text;
    size_t used, capacity;
    uint64_t end;
} mixed_header;

static void mixed_add(mixed_header *h, int rows, int columns, const char *format, ...)
{
    char name[128], shape[32];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    const uint64_t start = h->end;
    h->end += 2 * (uint64_t)rows * (uint64_t)(columns > 0 ? columns : 1);
    snprintf(shape, sizeof shape, columns > 0 ? "%d,%d" : "%d", rows, columns);
    h->used += (size_t)snprintf(h->text + h->used, h->capacity - h->used,
                                "%c\"%s\":{\"dtype\":\"F16\",\"shape\":[%s],"
                                "\"data_offsets\":[%llu,%llu]}",
                                start > 0 ? ',' : '{', name, shape, (unsigned long long)start,
                                (unsigned long long)h->end);
}

enum { MIXED_WIDTH = 256, MIXED_HIDDEN = 32, MIXED_VOCABULARY = 64 };

static void mixed_layer(mixed_header *h, const mixed_model *m, int layer)
{
    const int q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
    static const char *const experts[] = {"w1", "w3", "w2"}, *const dense[] = {"gate", "up",
                                                                               "down"};
    mixed_add(h, MIXED_WIDTH, 0, "model.layers.%d.input_layernorm.weight", layer);
    mixed_add(h, MIXED_WIDTH, 0, "model.layers.%d.post_attention_layernorm.weight", layer);
    mixed_add(h, q, MIXED_WIDTH, "model.layers.%d.self_attn.q_proj.weight", layer);
    mixed_add(h, kv, MIXED_WIDTH, "model.layers.%d.self_attn.k_proj.weight", layer);
    mixed_add(h, kv, MIXED_WIDTH, "model.layers.%d.self_attn.v_proj.weight", layer);
    mixed_add(h, MIXED_WIDTH, q, "model.layers.%d.self_attn.o_proj.weight", layer);
    if (m->experts > 0)
        mixed_add(h, m->experts, MIXED_WIDTH, "model.layers.%d.block_sparse_moe.gate.weight",
                  layer);
    for (int i = 0; i < 3 * (m->experts > 0 ? m->experts : 1); i++) {
        const int rows = i % 3 < 2 ? MIXED_HIDDEN : MIXED_WIDTH,
                  columns = MIXED_HIDDEN + MIXED_WIDTH - rows;
        if (m->experts > 0)
            mixed_add(h, rows, columns, "model.layers.%d.block_sparse_moe.experts.%d.%s.weight",
                      layer, i / 3, experts[i % 3]);
        else
            mixed_add(h, rows, columns, "model.layers.%d.mlp.%s_proj.weight", layer, dense[i]);
    }
}

/* Writes a model whose weights are zeros. */
static void write_mixed(const mixed_model *m, const char *place)
{
    char path[200];
    mixed_header h = {.capacity = 400000};
    h.text = malloc(h.capacity);
    ck_assert_ptr_nonnull(h.text);
    ck_assert_int_eq(mkdir(place, 0777), 0);
    snprintf(path, sizeof path, "%s/config.json", place);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fprintf(file,
            "{\"model_type\":\"%s\",\"hidden_size\":%d,\"num_hidden_layers\":%d,"
            "\"num_attention_heads\":%d,\"num_key_value_heads\":%d,\"head_dim\":%d,"
            "\"intermediate_size\":%d,\"vocab_size\":%d,\"max_position_embeddings\":64,"
            "\"tie_word_embeddings\":%s%s}",
            m->type, MIXED_WIDTH, m->layers, m->heads, m->kv_heads, m->head_dim, MIXED_HIDDEN,
            MIXED_VOCABULARY, m->tied ? "true" : "false", m->more);
    ck_assert_int_eq(fclose(file), 0);
    mixed_add(&h, MIXED_VOCABULARY, MIXED_WIDTH, "model.embed_tokens.weight");
    mixed_add(&h, MIXED_WIDTH, 0, "model.norm.weight");
    if (!m->tied)
        mixed_add(&h, MIXED_VOCABULARY, MIXED_WIDTH, "lm_head.weight");
    for (int i = 0; i < m->layers; i++)
        mixed_layer(&h, m, i);
    h.text[h.used++] = '}';
    snprintf(path, sizeof path, "%s/model.safetensors", place);
    file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    for (int i = 0; i < 8; i++)
        fputc((int)(h.used >> (8 * i) & 255), file);
    ck_assert_uint_eq(fwrite(h.text, 1, h.used, file), h.used);
    ck_assert_int_eq(fseek(file, (long)(h.end - 1), SEEK_CUR), 0);
    fputc(0, file);
    ck_assert_int_eq(fclose(file), 0);
    free(h.text);
}

/* A letter for the dtype of a tensor: the bits of formats with blocks of 256, a to c those of 4, 5
 * and 5 bits with blocks of 32. */
static char letter_of(const tsr_shard_list *list, const char *format, int layer)
{
    static const struct {
        const char *dtype;
        char letter;
    } letters[] = {{"f32", 'F'},  {"f16", 'h'},  {"q3_k", '3'}, {"q4_k", '4'}, {"q5_k", '5'},
                   {"q6_k", '6'}, {"q8_0", '8'}, {"q4_0", 'a'}, {"q5_0", 'b'}, {"q5_1", 'c'}};
    char name[64];
    snprintf(name, sizeof name, format, layer);
    for (uint64_t i = 0; i < tsr_shard_list_param_count(list); i++) {
        const tsr_shard_param *p = tsr_shard_list_param(list, i);
        for (size_t j = 0; strcmp(p->name, name) == 0 && j < sizeof letters / sizeof *letters; j++)
            if (strcmp(letters[j].dtype, p->dtype) == 0)
                return letters[j].letter;
    }
    return '-';
}

/* Writes the dtypes of the embedding and the head, of each layer's values and down, and of the
 * first layer's q, k, output and gate. */
static void describe_types(const char *path, int layers, bool experts, char *text)
{
    tsr_shard_list *list = open_list(path);
    const char *down = experts ? "blk.%d.ffn_down_exps.weight" : "blk.%d.ffn_down.weight",
               *gate = experts ? "blk.%d.ffn_gate_exps.weight" : "blk.%d.ffn_gate.weight";
    *text++ = letter_of(list, "token_embd.weight", 0);
    *text++ = letter_of(list, "output.weight", 0);
    *text++ = ' ';
    for (int i = 0; i < layers; i++)
        *text++ = letter_of(list, "blk.%d.attn_v.weight", i);
    *text++ = ' ';
    for (int i = 0; i < layers; i++)
        *text++ = letter_of(list, down, i);
    *text++ = ' ';
    *text++ = letter_of(list, "blk.%d.attn_q.weight", 0);
    *text++ = letter_of(list, "blk.%d.attn_k.weight", 0);
    *text++ = letter_of(list, "blk.%d.attn_output.weight", 0);
    *text++ = letter_of(list, gate, 0);
    *text = '\0';
    tsr_shard_list_destroy(&list);
}

static const mixed_model mixed_models[] = {
    {"llama", "", .layers = 17, .heads = 2, .kv_heads = 1, .head_dim = 2},
    {"llama", "", .layers = 80, .heads = 2, .kv_heads = 1, .head_dim = 2, .tied = true},
    {"mixtral", ",\"num_local_experts\":8,\"num_experts_per_tok\":2", .layers = 4, .heads = 4,
     .kv_heads = 2, .head_dim = 64, .experts = 8},
    {"llama", "", .layers = 4, .heads = 4, .kv_heads = 4, .head_dim = 64},
};

/* The types that llama-quantize of llama.cpp 0.7.0 gives these models. */
static const struct {
    int model;
    const char *mixture, *types;
} mixed_types[] = {
    {0, "q3_k_s", "36 33333333333333333 aaaaaaaaaaaaaaaaa 33h3"},
    {0, "q3_k_m", "36 55444444444444444 cbbbbbbbbbbbbbbbb 33h3"},
    {0, "q3_k_l", "36 55555555555555555 ccccccccccccccccc 33h3"},
    {0, "q4_k_s", "46 55554444444444444 ccbbbbbbbbbbbbbbb 44h4"},
    {0, "q4_k_m", "46 66446446446446666 88bb8bb8bb8bb8888 44h4"},
    {0, "q5_k_s", "56 55555555555555555 ccccccccccccccccc 55h5"},
    {0, "q5_k_m", "56 66556556556556666 88cc8cc8cc8cc8888 55h5"},
    {1, "q4_k_m",
     "6- 66666666665565565565565565565565565565565565565565565565565565565565566666666666 "
     "8888888888bb8bb8bb8bb8bb8bb8bb8bb8bb8bb8bb8bb8bb8bb8bb8bb8bb8bb8bb8bb88888888888 44h4"},
    {1, "q3_k_m",
     "6- 55555555555555555555555555555555555555555555555555555555555555555555555555555555 "
     "cccccbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb 33h3"},
    {2, "q3_k_s", "36 8888 aaaa 3853"},
    {2, "q3_k_m", "36 8888 bbbb 3853"},
    {2, "q3_k_l", "36 8888 cccc 3833"},
    {2, "q4_k_s", "46 8888 bbbb 4854"},
    {2, "q4_k_m", "46 8888 bb88 4854"},
    {2, "q5_k_m", "56 8888 cc88 5855"},
    {3, "q3_k_m", "36 5544 bbbb 3343"},
    {3, "q3_k_l", "36 5555 cccc 3353"},
    {3, "q4_k_m", "46 4466 bb88 4444"},
};

START_TEST(mixtures_have_the_types_of_llama_cpp)
{
    char types[200], name[32];
    for (size_t i = 0; i < sizeof mixed_types / sizeof *mixed_types; i++) {
        const mixed_model *m = &mixed_models[mixed_types[i].model];
        snprintf(name, sizeof name, "mixed%d", mixed_types[i].model);
        if (i == 0 || mixed_types[i].model != mixed_types[i - 1].model)
            write_mixed(m, at(name));
        ck_assert_ok(convert_model(at(name), at("mixed.gguf"),
                                   tsr_convert_params(.mixture = mixed_types[i].mixture,
                                                      .weights_only = true, .replace = true),
                                   NULL));
        describe_types(at("mixed.gguf"), m->layers, m->experts > 0, types);
        ck_assert_msg(strcmp(types, mixed_types[i].types) == 0, "model %d, %s: %s",
                      mixed_types[i].model, mixed_types[i].mixture, types);
    }
}
END_TEST

/* All tensors and their bytes are those of the files that llama-quantize has made. */
START_TEST(mixtures_equal_the_recorded_files)
{
    static const char *const names[] = {"q4_k_m", "q5_k_m"};
    char recorded[512];
    tsr_convert_stats stats = TSR_INIT(tsr_convert_stats);
    for (int i = 0; i < 2; i++) {
        ck_assert_ok(convert_model(TEST_DATA "/model/synth-A-f16.gguf", at("k.gguf"),
                                   tsr_convert_params(.mixture = names[i], .replace = true),
                                   &stats));
        snprintf(recorded, sizeof recorded, TEST_DATA "/model/synth-A-%s.gguf", names[i]);
        ck_assert_uint_eq(stats.kept, 0);
        ck_assert_int_eq(compare(at("k.gguf"), recorded), (int)stats.tensors);
    }
    /* No row of this model is whole blocks of 256; five matrices become f16. */
    int notes = 0;
    ck_assert_ok(convert_model(STORIES "-f32.gguf", at("k.gguf"),
                               tsr_convert_params(.mixture = "q4_k_m", .replace = true,
                                                  .note = count_note, .user = &notes),
                               &stats));
    ck_assert_uint_eq(stats.kept, 5);
    ck_assert_int_eq(notes, 2);
    ck_assert_int_eq(compare(at("k.gguf"), STORIES "-q4_k_m.gguf"), 47);
}
END_TEST

START_TEST(mixtures_are_checked)
{
    static const struct {
        const char *mixture, *destination;
        tsr_dtype dtype;
        tsr_status status;
        const char *sentence;
    } cases[] = {
        {"q4_k_x", "a.gguf", 0, TSR_ERR_INVALID, "unknown mixture 'q4_k_x'"},
        {"q4_k_m", "a.gguf", TSR_F16, TSR_ERR_INVALID, "both a dtype, f16, and a mixture, q4_k_m"},
        {"q4_k_m", "a", 0, TSR_ERR_UNSUPPORTED, "cannot have weights of the mixture q4_k_m; f32"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tsr_status status = convert_model(
            STORIES "-f32.gguf", at(cases[i].destination),
            tsr_convert_params(.mixture = cases[i].mixture, .dtype = cases[i].dtype), NULL);
        ck_assert_int_eq(status, cases[i].status);
        ck_assert_msg(strstr(tsr_last_error(), cases[i].sentence) != NULL, "%s", tsr_last_error());
    }
    expect_nothing_in_work();
    int count = 0;
    while (tsr_convert_mixture_at(count))
        count++;
    ck_assert_int_eq(count, 7);
    ck_assert_ptr_null(tsr_convert_mixture_at(-1));
}
END_TEST

START_TEST(memory_runs_out)
{
    const char *sources[2] = {tiny(1800, "", "mini-llama3.tokenizer.json", "tokenizer.json"),
                              STORIES "-f32.gguf"};
    const char *destinations[2] = {at("a.gguf"), at("a")};
    for (int i = 0; i < 2; i++) {
        uint64_t nth = 0, step = 1;
        for (bool reached = true; reached; nth += step) {
            tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
            const tsr_status status = convert_model(sources[i], destinations[i], NULL, NULL);
            reached = tsr__fault_site() != NULL;
            tsr__fault_disarm();
            ck_assert_int_eq(status, reached ? TSR_ERR_NO_MEMORY : TSR_OK);
            ck_assert_int_eq(access(destinations[i], R_OK) == 0, !reached);
            step = nth < 60 ? 1 : 7;
        }
        ck_assert_uint_gt(nth, 50);
    }
}
END_TEST

/* Families ------------------------------------------------------------------------------------- */

static const char *const recorded[] = {"smollm3",    "granite",   "olmo2",     "olmo3",
                                       "gemma2",     "gemma3",    "phi3",      "phi3short",
                                       "ministral3", "qwen3next", "qwen35moe", "deepseek2"};

/* Checks that tensors of one dimension in a folder, f32 because the source has them so, are those
 * in another one, which are bf16 in a file of the source's model. */
static void check_norms(const char *f32_path, const char *bf16_path)
{
    tsr_shard_list *a = open_list(f32_path), *b = open_list(bf16_path);
    int compared = 0;
    for (uint64_t i = 0; i < tsr_shard_list_param_count(a); i++) {
        const tsr_shard_param *p = tsr_shard_list_param(a, i), *q = NULL;
        for (uint64_t k = 0; k < tsr_shard_list_param_count(b); k++)
            if (strcmp(tsr_shard_list_param(b, k)->name, p->name) == 0)
                q = tsr_shard_list_param(b, k);
        ck_assert_msg(q && same_shape(p, q), "%s", p->name);
        if (p->ndim != 1)
            continue;
        uint8_t *got = read_tensor(f32_path, p), *want = read_tensor(bf16_path, q);
        for (int64_t k = 0; k < p->shape[0]; k++) {
            float value, wanted;
            const uint32_t wide = (uint32_t)want[2 * k] << 16 | (uint32_t)want[2 * k + 1] << 24;
            memcpy(&value, got + 4 * k, sizeof value);
            memcpy(&wanted, &wide, sizeof wanted);
            if (strcmp(q->dtype, "f32") == 0) /* biases for the choice of experts */
                memcpy(&wanted, want + 4 * k, sizeof wanted);
            ck_assert_msg(fabsf(value - wanted) <= 2e-7F, "%s: %g, not %g", p->name, (double)value,
                          (double)wanted);
        }
        free(got);
        free(want);
        compared++;
    }
    ck_assert_int_gt(compared, 4);
    tsr_shard_list_destroy(&a);
    tsr_shard_list_destroy(&b);
}

/* Returns how many tensors have names with this text. */
static int count_with(const char *path, const char *text)
{
    tsr_shard_list *list = open_list(path);
    int count = 0;
    for (uint64_t i = 0; i < tsr_shard_list_param_count(list); i++)
        count += strstr(tsr_shard_list_param(list, i)->name, text) != NULL;
    tsr_shard_list_destroy(&list);
    return count;
}

/* Experts change their arrangement: each has tensors of its own in some folders and none in GGUF
 * files, and gpt-oss has blocks and scales of MXFP4 apart, with rows of gate and up in turn. */
START_TEST(experts_there_and_back)
{
    static const char gptoss[] = TEST_DATA "/model/families/gptoss/gptoss-mxfp4.gguf",
                      glm[] = TEST_DATA "/model/families/glm4moe/glm4moe-f16.gguf",
                      oss_folder[] = TEST_DATA "/model/families/gptoss/hf",
                      qwen[] = TEST_DATA "/model/families/qwen2moe/hf";
    /* GGUF files have norms, biases and routers in f32, so a folder gets them in f32. */
    ck_assert_ok(convert_model(oss_folder, at("a.gguf"), NULL, NULL));
    ck_assert_ok(convert_model(at("a.gguf"), at("a"), NULL, NULL));
    ck_assert_int_eq(compare(at("a"), oss_folder), 4 * 8 + 2);
    ck_assert_ok(convert_model(qwen, at("b.gguf"), NULL, NULL));
    ck_assert_ok(convert_model(at("b.gguf"), at("b"), NULL, NULL));
    ck_assert_int_eq(compare(at("b"), qwen), 4 * (4 + 5 * 3 + 3) + 2);
    ck_assert_ok(convert_model(gptoss, at("c"), NULL, NULL));
    ck_assert_ok(convert_model(at("c"), at("c.gguf"), NULL, NULL));
    ck_assert_int_eq(compare(at("c.gguf"), gptoss), count_with(gptoss, ""));
    ck_assert_ok(convert_model(glm, at("d"), NULL, NULL));
    ck_assert_ok(convert_model(at("d"), at("d.gguf"), NULL, NULL));
    ck_assert_int_eq(compare(at("d.gguf"), glm), count_with(glm, ""));
    /* its last layer predicts further tokens */
    ck_assert_int_eq(count_with(at("d"), "model.layers.3.eh_proj.weight"), 1);
    ck_assert_int_eq(count_with(at("d"), "model.layers.3.shared_head.norm.weight"), 1);
    tsr_model_file *file = NULL;
    ck_assert_ok(tsr_model_file_open(at("d"), &file));
    ck_assert_int_eq(tsr_model_file_config(file)->next_token_layers, 1);
    ck_assert_int_eq(tsr_model_file_config(file)->layers, 3);
    tsr_model_file_close(&file);
    /* Layers of Gemma 4 differ in sizes, and have experts beside the MLP. */
    static const char gemma[] = TEST_DATA "/model/families/gemma4/gemma4-f16.gguf",
                      gemma_experts[] = TEST_DATA "/model/families/gemma4moe/hf";
    ck_assert_ok(convert_model(gemma, at("g"), NULL, NULL));
    ck_assert_ok(convert_model(at("g"), at("g.gguf"), NULL, NULL));
    ck_assert_int_eq(compare(at("g.gguf"), gemma), count_with(gemma, ""));
    ck_assert_ok(convert_model(gemma_experts, at("h.gguf"), NULL, NULL));
    ck_assert_ok(convert_model(at("h.gguf"), at("h"), NULL, NULL));
    ck_assert_ok(convert_model(at("h"), at("i.gguf"), NULL, NULL));
    ck_assert_int_eq(compare(at("i.gguf"), at("h.gguf")), count_with(at("h.gguf"), ""));
    /* In floats, a folder of gpt-oss has matrices of experts transposed. */
    ck_assert_ok(convert_model(gptoss, at("e"), tsr_convert_params(.dtype = TSR_F32), NULL));
    ck_assert_ok(convert_model(at("e"), at("e.gguf"), NULL, NULL));
    ck_assert_ok(convert_model(gptoss, at("f.gguf"), tsr_convert_params(.dtype = TSR_F32), NULL));
    ck_assert_int_eq(compare(at("e.gguf"), at("f.gguf")), count_with(gptoss, ""));
    tsr_shard_list *list = open_list(at("e"));
    for (uint64_t i = 0; i < tsr_shard_list_param_count(list); i++) {
        const tsr_shard_param *p = tsr_shard_list_param(list, i);
        if (strstr(p->name, "experts.gate_up_proj") && !strstr(p->name, "bias"))
            ck_assert(p->ndim == 3 && p->shape[1] == 64 && p->shape[2] == 64);
        if (strstr(p->name, "experts.down_proj") && !strstr(p->name, "bias"))
            ck_assert(p->ndim == 3 && p->shape[1] == 32 && p->shape[2] == 64);
    }
    tsr_shard_list_destroy(&list);
}
END_TEST

/* Appends a tensor to the header and to the weights of a safetensors file. */
static void add_merged(char *header, size_t size, bytes *weights, const char *name,
                       const char *shape, const uint8_t *data, size_t count)
{
    const size_t length = strlen(header);
    snprintf(header + length, size - length,
             "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
             length > 0 ? "," : "{", name, shape, weights->size, weights->size + count);
    weights->data = realloc(weights->data, weights->size + count);
    ck_assert_ptr_nonnull(weights->data);
    memcpy(weights->data + weights->size, data, count);
    weights->size += count;
}

/* Copies qwen2moe's folder, in which each of 5 experts has tensors of its own, to a folder with one
 * tensor for gate and up of all experts of a layer and another one for down. */
static void merge_experts(const char *from, const char *to)
{
    static char header[65536];
    char path[256], name[128], shape[64];
    tsr_shard_list *list = open_list(from);
    bytes weights = {0};
    header[0] = '\0';
    for (uint64_t i = 0; i < tsr_shard_list_param_count(list); i++) {
        const tsr_shard_param *p = tsr_shard_list_param(list, i);
        if (strstr(p->name, ".experts."))
            continue;
        snprintf(shape, sizeof shape, p->ndim > 1 ? "%d,%d" : "%d", (int)p->shape[0],
                 (int)p->shape[1]);
        uint8_t *data = read_tensor(from, p);
        add_merged(header, sizeof header, &weights, p->name, shape, data, p->size_bytes);
        free(data);
    }
    for (int layer = 0; layer < 4; layer++)
        for (int down = 0; down < 2; down++) {
            static uint8_t all[5 * 2 * 32 * 64 * 2];
            size_t at = 0;
            for (int e = 0; e < 5 * (2 - down); e++) {
                snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.%s_proj.weight", layer,
                         down ? e : e / 2,
                         down    ? "down"
                         : e % 2 ? "up"
                                 : "gate");
                for (uint64_t i = 0; i < tsr_shard_list_param_count(list); i++) {
                    const tsr_shard_param *p = tsr_shard_list_param(list, i);
                    if (strcmp(p->name, name) != 0)
                        continue;
                    uint8_t *data = read_tensor(from, p);
                    memcpy(all + at, data, p->size_bytes);
                    at += p->size_bytes;
                    free(data);
                }
            }
            ck_assert_uint_eq(at, sizeof all / (down ? 2 : 1));
            snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%s_proj", layer,
                     down ? "down" : "gate_up");
            add_merged(header, sizeof header, &weights, name, down ? "5,64,32" : "5,64,64", all,
                       at);
        }
    strcat(header, "}");
    ck_assert_int_eq(mkdir(to, 0777), 0);
    snprintf(path, sizeof path, "%s/model.safetensors", to);
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    for (int i = 0; i < 8; i++)
        fputc((int)(strlen(header) >> (8 * i) & 255), file);
    fputs(header, file);
    ck_assert_uint_eq(fwrite(weights.data, 1, weights.size, file), weights.size);
    ck_assert_int_eq(fclose(file), 0);
    free(weights.data);
    tsr_shard_list_destroy(&list);
    char config[256];
    snprintf(config, sizeof config, "%s/config.json", from);
    snprintf(path, sizeof path, "%s/config.json", to);
    copy_file(config, path);
}

START_TEST(merged_experts_are_read)
{
    static const char qwen[] = TEST_DATA "/model/families/qwen2moe/hf";
    merge_experts(qwen, at("merged"));
    ck_assert_ok(convert_model(at("merged"), at("merged.gguf"), NULL, NULL));
    ck_assert_ok(convert_model(qwen, at("apart.gguf"), NULL, NULL));
    ck_assert_int_eq(compare(at("merged.gguf"), at("apart.gguf")),
                     count_with(at("apart.gguf"), ""));
}
END_TEST

/* A GGUF file that is being written: descriptions of tensors, and their weights. */
typedef struct arranged {
    bytes tensors, weights;
    uint64_t count;
} arranged;

static void arrange(arranged *to, const char *name, const char *dtype, int ndim,
                    const int64_t *shape, const uint8_t *data, size_t size)
{
    put_text(&to->tensors, name);
    put_integer(&to->tensors, (uint64_t)ndim, 4);
    for (int d = ndim - 1; d >= 0; d--)
        put_integer(&to->tensors, (uint64_t)shape[d], 8);
    ck_assert(strcmp(dtype, "f32") == 0 || strcmp(dtype, "f16") == 0);
    put_integer(&to->tensors, strcmp(dtype, "f16") == 0, 4);
    put_integer(&to->tensors, to->weights.size, 8);
    put_bytes(&to->weights, data, size);
    put_zeros(&to->weights, (32 - size % 32) % 32);
    to->count++;
}

/* Adds a tensor for each expert, as in files of before April 2024. */
static void arrange_apart(arranged *to, const tsr_shard_param *p, const uint8_t *data)
{
    const char *at = strstr(p->name, "_exps.");
    const size_t each = p->size_bytes / (size_t)p->shape[0];
    for (int e = 0; e < (int)p->shape[0]; e++) {
        char name[128];
        snprintf(name, sizeof name, "%.*s.%d.weight", (int)(at - p->name), p->name, e);
        arrange(to, name, p->dtype, 2, p->shape + 1, data + (size_t)e * each, each);
    }
}

/* Adds the rows of gate and of up of each expert as one tensor. */
static void arrange_gate_up(arranged *to, const char *path, const tsr_shard_list *list,
                            const tsr_shard_param *gate, const uint8_t *data)
{
    char name[128];
    const size_t each = gate->size_bytes / (size_t)gate->shape[0];
    const int64_t shape[3] = {gate->shape[0], 2 * gate->shape[1], gate->shape[2]};
    uint8_t *both = malloc(2 * gate->size_bytes), *up = NULL;
    snprintf(name, sizeof name, "%.*sffn_up_exps.weight",
             (int)(strstr(gate->name, "ffn_gate") - gate->name), gate->name);
    for (uint64_t i = 0; i < tsr_shard_list_param_count(list); i++)
        if (strcmp(tsr_shard_list_param(list, i)->name, name) == 0)
            up = read_tensor(path, tsr_shard_list_param(list, i));
    ck_assert(both && up);
    for (size_t e = 0; e < (size_t)gate->shape[0]; e++) {
        memcpy(both + 2 * e * each, data + e * each, each);
        memcpy(both + (2 * e + 1) * each, up + e * each, each);
    }
    snprintf(name, sizeof name, "%.*sffn_gate_up_exps.weight",
             (int)(strstr(gate->name, "ffn_gate") - gate->name), gate->name);
    arrange(to, name, gate->dtype, 3, shape, both, 2 * gate->size_bytes);
    free(both);
    free(up);
}

/* Adds q, k, v and z of a delta net as one tensor, in which all rows of a key head come before
 * those of the next one. `qkv` is the tensor of q, k and v. */
static void arrange_joined(arranged *to, const char *path, const tsr_shard_list *list,
                           const tsr_shard_param *qkv, const uint8_t *data)
{
    enum { HEADS = 2, KEY = 16, VALUES = 32, ROW = 64 * 2 };
    char name[128];
    const int64_t shape[2] = {HEADS * 2 * (KEY + VALUES), 64};
    uint8_t *all = malloc((size_t)shape[0] * ROW), *z = NULL, *next = all;
    const int length = (int)(strstr(qkv->name, "attn_qkv") - qkv->name);
    snprintf(name, sizeof name, "%.*sattn_gate.weight", length, qkv->name);
    for (uint64_t i = 0; i < tsr_shard_list_param_count(list); i++)
        if (strcmp(tsr_shard_list_param(list, i)->name, name) == 0)
            z = read_tensor(path, tsr_shard_list_param(list, i));
    ck_assert(all && z);
    for (size_t head = 0; head < HEADS; head++) {
        const struct {
            const uint8_t *from;
            size_t first, rows;
        } parts[] = {{data, head * KEY, KEY},
                     {data, (HEADS + head) * KEY, KEY},
                     {data, 2 * HEADS * KEY + head * VALUES, VALUES},
                     {z, head * VALUES, VALUES}};
        for (int i = 0; i < 4; i++) {
            memcpy(next, parts[i].from + parts[i].first * ROW, parts[i].rows * ROW);
            next += parts[i].rows * ROW;
        }
    }
    snprintf(name, sizeof name, "%.*sssm_in.weight", length, qkv->name);
    arrange(to, name, qkv->dtype, 2, shape, all, (size_t)(next - all));
    free(all);
    free(z);
}

/* POSITIVE: ssm_a has the wrong sign */
typedef enum arrangement { APART, GATE_UP, JOINED, POSITIVE } arrangement;

/* Copies a GGUF file to one with another arrangement of experts or delta nets. */
static void rearrange(const char *from, const char *to, arrangement how)
{
    tsr__file file;
    ck_assert_ok(tsr__file_open(from, &file));
    tsr__gguf gguf = {.file = &file};
    uint64_t tensors, keys;
    char *text;
    arranged out = {.count = 0};
    bytes all = {0};
    ck_assert_ok(tsr__gguf_head(&gguf, &tensors, &keys));
    const uint64_t keys_at = gguf.at;
    for (uint64_t i = 0; i < keys; i++) {
        uint32_t type;
        ck_assert_ok(tsr__gguf_name(&gguf, "key"));
        ck_assert_ok(tsr__gguf_u32(&gguf, "type", &type));
        ck_assert_ok(tsr__gguf_skip(&gguf, type));
    }
    const uint64_t keys_end = gguf.at;
    tsr_shard_list *list = open_list(from);
    for (uint64_t i = 0; i < tensors; i++) {
        const tsr_shard_param *p = tsr_shard_list_param(list, i);
        uint8_t *data = read_tensor(from, p);
        if (how == POSITIVE && strstr(p->name, "ssm_a"))
            data[4 + 3] &= 0x7f;
        if (how == APART && strstr(p->name, "_exps."))
            arrange_apart(&out, p, data);
        else if (how == GATE_UP && strstr(p->name, "ffn_gate_exps."))
            arrange_gate_up(&out, from, list, p, data);
        else if (how == JOINED && strstr(p->name, "attn_qkv."))
            arrange_joined(&out, from, list, p, data);
        else if ((how != GATE_UP || !strstr(p->name, "ffn_up_exps.")) &&
                 (how != JOINED || !strstr(p->name, "attn_gate.")))
            arrange(&out, p->name, p->dtype, p->ndim, p->shape, data, p->size_bytes);
        free(data);
    }
    tsr_shard_list_destroy(&list);
    put_gguf_head(&all, 3, out.count, keys);
    ck_assert_ok(tsr__file_load(&file, keys_at, keys_end - keys_at, "the keys", &text));
    put_bytes(&all, text, keys_end - keys_at);
    tsr__free(text);
    tsr__file_close(&file);
    put_bytes(&all, out.tensors.data, out.tensors.size);
    put_zeros(&all, (32 - all.size % 32) % 32);
    put_bytes(&all, out.weights.data, out.weights.size);
    FILE *written = fopen(to, "wb");
    ck_assert(written && fwrite(all.data, 1, all.size, written) == all.size);
    ck_assert_int_eq(fclose(written), 0);
    free(out.tensors.data);
    free(out.weights.data);
    free(all.data);
}

START_TEST(arranged_experts_are_read)
{
    static const char glm[] = TEST_DATA "/model/families/glm4moe/glm4moe-f16.gguf";
    ck_assert_ok(convert_model(glm, at("usual.gguf"), NULL, NULL));
    for (arrangement how = APART; how <= GATE_UP; how++) {
        const char *made = at(how == APART ? "a.gguf" : "b.gguf");
        rearrange(glm, at("arranged.gguf"), how);
        ck_assert_ok(convert_model(at("arranged.gguf"), made, NULL, NULL));
        ck_assert_int_eq(compare(made, at("usual.gguf")), count_with(at("usual.gguf"), ""));
    }
}
END_TEST

/* Delta nets as early GGUF files of Qwen3-Next have them. */
START_TEST(joined_delta_nets_are_read)
{
    static const char next[] = TEST_DATA "/model/families/qwen3next/qwen3next-f16.gguf";
    rearrange(next, at("joined.gguf"), JOINED);
    ck_assert_ok(convert_model(at("joined.gguf"), at("j.gguf"), NULL, NULL));
    ck_assert_int_eq(compare(at("j.gguf"), next), count_with(next, ""));
    rearrange(next, at("positive.gguf"), POSITIVE);
    const tsr_status status = convert_model(at("positive.gguf"), at("p"), NULL, NULL);
    ck_assert_int_eq(status, TSR_ERR_INVALID);
    ck_assert_msg(
        strncmp(tsr_last_error(), "convert: tensor blk.0.ssm_a: the element of row 1 is ", 53) == 0,
        "%s", tsr_last_error());
}
END_TEST

/* Mixtral as Transformers 5 names it. */
START_TEST(mixtral_with_other_names)
{
    static const char *const inside[][2] = {
        {"input_layernorm.weight", "8"},    {"post_attention_layernorm.weight", "8"},
        {"self_attn.q_proj.weight", "8,8"}, {"self_attn.k_proj.weight", "4,8"},
        {"self_attn.v_proj.weight", "4,8"}, {"self_attn.o_proj.weight", "8,8"},
        {"mlp.gate.weight", "2,8"},         {"mlp.experts.gate_up_proj", "2,12,8"},
        {"mlp.experts.down_proj", "2,8,6"},
    };
    static char header[4096], path[160];
    bytes weights = {0};
    const uint8_t zeros[2 * 12 * 8 * 2] = {0};
    tsr_model_file *file = NULL;
    header[0] = '\0';
    add_merged(header, sizeof header, &weights, "model.embed_tokens.weight", "16,8", zeros, 256);
    add_merged(header, sizeof header, &weights, "lm_head.weight", "16,8", zeros, 256);
    add_merged(header, sizeof header, &weights, "model.norm.weight", "8", zeros, 16);
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++) {
        char name[128];
        int sizes[3] = {1, 1, 1};
        (void)sscanf(inside[i][1], "%d,%d,%d", &sizes[0], &sizes[1], &sizes[2]);
        snprintf(name, sizeof name, "model.layers.0.%s", inside[i][0]);
        add_merged(header, sizeof header, &weights, name, inside[i][1], zeros,
                   (size_t)(sizes[0] * sizes[1] * sizes[2]) * 2);
    }
    strcat(header, "}");
    bytes all = safetensors_file(header, weights.size);
    ck_assert_int_eq(mkdir(at("mixtral"), 0777), 0);
    folder_write(&work, "mixtral/model.safetensors", (char *)all.data, all.size, path);
    static const char config[] =
        "{\"architectures\": [\"MixtralForCausalLM\"], \"model_type\": \"mixtral\", "
        "\"hidden_size\": 8, \"intermediate_size\": 6, \"num_hidden_layers\": 1, "
        "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"vocab_size\": 16, "
        "\"max_position_embeddings\": 32, \"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\", "
        "\"num_local_experts\": 2, \"num_experts_per_tok\": 1}";
    folder_write(&work, "mixtral/config.json", config, sizeof config - 1, path);
    ck_assert_ok(tsr_model_file_open(at("mixtral"), &file));
    tsr_model_file_close(&file);
    free(all.data);
    free(weights.data);
}
END_TEST

START_TEST(recorded_families_there_and_back)
{
    char hf[256], gguf[256];
    tsr_model_file *files[4] = {NULL};
    snprintf(hf, sizeof hf, TEST_DATA "/model/families/%s/hf", recorded[_i]);
    snprintf(gguf, sizeof gguf, TEST_DATA "/model/families/%s/%s-f16.gguf", recorded[_i],
             recorded[_i]);
    ck_assert_ok(convert_model(hf, at("f.gguf"), tsr_convert_params(.dtype = TSR_F16), NULL));
    tsr_shard_list *list = open_list(gguf);
    /* All tensors, also the divisors of LongRoPE, as llama.cpp's converter writes them. */
    ck_assert_int_eq(compare(at("f.gguf"), gguf), (int)tsr_shard_list_param_count(list));
    tsr_shard_list_destroy(&list);
    ck_assert_ok(convert_model(gguf, at("f"), tsr_convert_params(.dtype = TSR_BF16), NULL));
    /* The folder of Qwen 3.5 is that of a model for images, whose names have another prefix. */
    const char *same = hf;
    if (strncmp(recorded[_i], "qwen35", 6) == 0) {
        same = at("own");
        ck_assert_ok(convert_model(hf, same, NULL, NULL));
    }
    ck_assert_int_ge(compare(at("f"), same), 9);
    check_norms(at("f"), same);
    const char *const paths[] = {hf, gguf, at("f.gguf"), at("f")};
    for (int i = 0; i < 4; i++) {
        ck_assert_ok(tsr_model_file_open(paths[i], &files[i]));
        ck_assert_ok(tsr__config_compare(tsr_model_file_config(files[0]),
                                         tsr_model_file_config(files[i]), paths[i]));
    }
    for (int i = 0; i < 4; i++)
        tsr_model_file_close(&files[i]);
}
END_TEST

/* Adds a tensor of a file to another one. `count` numbers are taken from its start. */
static void add_copy(bytes *weights, char *header, size_t size, const char *path,
                     const tsr_shard_param *from, const char *name, int ndim, const int64_t *shape)
{
    size_t used = strlen(header), count = (size_t)(from->size_bytes / from->count);
    uint8_t *data = read_tensor(path, from);
    used += (size_t)snprintf(header + used, size - used, "%c\"%s\":{\"dtype\":\"%s\",\"shape\":[",
                             used == 0 ? '{' : ',', name, from->dtype);
    for (int d = 0; d < ndim; d++) {
        used +=
            (size_t)snprintf(header + used, size - used, "%s%d", d > 0 ? "," : "", (int)shape[d]);
        count *= (size_t)shape[d];
    }
    snprintf(header + used, size - used, "],\"data_offsets\":[%zu,%zu]}", weights->size,
             weights->size + count);
    put_bytes(weights, data, count);
    free(data);
}

/* How files name the tensors of a layer that predicts further tokens. */
typedef struct next_names {
    const char *layer, *outside, *join, *vectors[3], *copy;
} next_names;
static const next_names mtp_names = {.layer = "mtp.layers.0.",
                                     .outside = "mtp.",
                                     .join = "fc",
                                     .vectors = {"pre_fc_norm_embedding", "pre_fc_norm_hidden",
                                                 "norm"}},
                        deepseek_names = {.layer = "model.layers.4.",
                                          .outside = "model.layers.4.",
                                          .join = "eh_proj",
                                          .vectors = {"enorm", "hnorm", "shared_head.norm"},
                                          .copy = "model.layers.4.embed_tokens.weight"};

/* Copies a folder, and adds a layer that predicts further tokens: a copy of layer 3, with experts
 * in tensors of their own if `apart`. */
static void add_next_layer(const char *from, const char *to, const next_names *names, bool apart)
{
    enum { SIZE = 1 << 16, WIDTH = 64 };
    char *header = calloc(SIZE, 1), name[160], path[160];
    const tsr_shard_param *embedding = NULL;
    tsr_shard_list *list = open_list(from);
    bytes weights = {0};
    ck_assert_ptr_nonnull(header);
    for (uint64_t i = 0; i < tsr_shard_list_param_count(list); i++) {
        const tsr_shard_param *p = tsr_shard_list_param(list, i);
        const char *inside = strstr(p->name, "layers.3.");
        add_copy(&weights, header, SIZE, from, p, p->name, p->ndim, p->shape);
        embedding = strstr(p->name, "embed_tokens") ? p : embedding;
        if (!inside)
            continue;
        snprintf(name, sizeof name, "%s%s", names->layer, inside + strlen("layers.3."));
        const char *merged = strstr(p->name, "gate_up_proj"),
                   *down = strstr(p->name, "experts.down_proj");
        if (!apart || (!merged && !down)) {
            add_copy(&weights, header, SIZE, from, p, name, p->ndim, p->shape);
            continue;
        }
        for (int e = 0; e < (int)p->shape[0]; e++) { /* other numbers, of the same shapes */
            const int64_t shape[2] = {p->shape[1] / (merged ? 2 : 1), p->shape[2]};
            const char *const parts[] = {merged ? "gate" : "down", "up"};
            for (int part = 0; part < (merged ? 2 : 1); part++) {
                snprintf(name, sizeof name, "mtp.layers.0.mlp.experts.%d.%s_proj.weight", e,
                         parts[part]);
                add_copy(&weights, header, SIZE, from, p, name, 2, shape);
            }
        }
    }
    ck_assert_ptr_nonnull(embedding);
    snprintf(name, sizeof name, "%s%s.weight", names->outside, names->join);
    add_copy(&weights, header, SIZE, from, embedding, name, 2, (int64_t[]){WIDTH, 2 * WIDTH});
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s%s.weight", names->outside, names->vectors[i]);
        add_copy(&weights, header, SIZE, from, embedding, name, 1, (int64_t[]){WIDTH});
    }
    if (names->copy)
        add_copy(&weights, header, SIZE, from, embedding, names->copy, 2, embedding->shape);
    strcat(header, "}");
    bytes all = safetensors_file(header, weights.size);
    memcpy(all.data + all.size - weights.size, weights.data, weights.size);
    ck_assert_int_eq(mkdir(at(to), 0777), 0);
    snprintf(name, sizeof name, "%s/model.safetensors", to);
    folder_write(&work, name, (char *)all.data, all.size, path);
    snprintf(path, sizeof path, "%s/config.json", from);
    snprintf(name, sizeof name, "%s/config.json", to);
    copy_file(path, at(name));
    tsr_shard_list_destroy(&list);
    free(all.data);
    free(weights.data);
    free(header);
}

static int next_layers_of(const char *path)
{
    tsr_model_file *file = NULL;
    ck_assert_ok(tsr_model_file_open(path, &file));
    const int count = tsr_model_file_config(file)->next_token_layers;
    ck_assert_int_eq(tsr_model_file_config(file)->layers, 4);
    tsr_model_file_close(&file);
    return count;
}

/* Layers that predict further tokens travel, too. */
START_TEST(next_token_layers_travel)
{
    static const char *const folders[] = {TEST_DATA "/model/families/qwen35moe/hf",
                                          TEST_DATA "/model/families/deepseek2/hf"};
    const char *hf = folders[_i / 2];
    const bool apart = _i == 1;
    const next_names *names = _i < 2 ? &mtp_names : &deepseek_names;
    add_next_layer(hf, "next", names, apart);
    ck_assert_int_eq(next_layers_of(at("next")), 1);
    ck_assert_int_eq(next_layers_of(hf), 0);
    ck_assert_ok(
        convert_model(at("next"), at("n.gguf"), tsr_convert_params(.dtype = TSR_F16), NULL));
    ck_assert_int_eq(next_layers_of(at("n.gguf")), 1);
    ck_assert_int_eq(count_with(at("n.gguf"), "blk.4.nextn."), 4);
    ck_assert_int_eq(count_with(at("n.gguf"), "blk.4."), 4 + count_with(at("n.gguf"), "blk.3."));
    ck_assert_ok(
        convert_model(at("n.gguf"), at("back"), tsr_convert_params(.dtype = TSR_BF16), NULL));
    ck_assert_int_eq(next_layers_of(at("back")), 1);
    ck_assert_ok(convert_model(at("next"), at("own"), NULL, NULL));
    ck_assert_int_gt(compare(at("own"), at("back")), 20);
    ck_assert_int_eq(count_with(at("own"), names->outside), count_with(at("back"), names->outside));
    check_norms(at("back"), at("own"));
    if (!apart) {
        ck_assert_int_gt(compare(at("own"), at("next")), 12); /* those of mtp, and the head */
        ck_assert_int_eq(count_with(at("own"), names->outside) + (names->copy != NULL),
                         count_with(at("next"), names->outside));
    }
    /* the same layer as a part of the model and of its own */
    ck_assert_ok(convert_model(at("n.gguf"), at("again.gguf"), NULL, NULL));
    ck_assert_int_eq(compare(at("n.gguf"), at("again.gguf")), count_with(at("n.gguf"), "."));
}
END_TEST

/* Copies a safetensors file, and replaces the prefix "model." of tensors' names by another one. */
static void copy_with_prefix(const char *from, const char *to, const char *prefix)
{
    static const char old[] = "\"model.";
    uint8_t size[8];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    ck_assert(in && out && fread(size, 1, 8, in) == 8);
    const size_t length = (size_t)(size[0] | size[1] << 8 | size[2] << 16);
    char *header = calloc(length + 1, 1), *made = calloc(4 * length, 1);
    ck_assert(header && made && fread(header, 1, length, in) == length);
    size_t used = 0;
    for (const char *c = header; *c;) {
        const bool found = strncmp(c, old, sizeof old - 1) == 0;
        if (found)
            used += (size_t)snprintf(made + used, 4 * length - used, "\"%s", prefix);
        else
            made[used++] = *c;
        c += found ? sizeof old - 1 : 1;
    }
    for (int i = 0; i < 8; i++)
        fputc((int)(used >> (8 * i) & 0xff), out);
    ck_assert_uint_eq(fwrite(made, 1, used, out), used);
    for (int c; (c = fgetc(in)) != EOF;)
        fputc(c, out);
    fclose(in);
    ck_assert_int_eq(fclose(out), 0);
    free(header);
    free(made);
}

/* The text model inside a model for images and text has its configuration in text_config. */
START_TEST(text_models_inside_others)
{
    static const char hf[] = TEST_DATA "/model/families/gemma3/hf",
                      gguf[] = TEST_DATA "/model/families/gemma3/gemma3-f16.gguf";
    static const char *const prefixes[] = {"language_model.model.", "model.language_model."};
    char inner[4096], path[256];
    snprintf(path, sizeof path, "%s/config.json", hf);
    FILE *in = fopen(path, "rb");
    ck_assert_ptr_nonnull(in);
    const size_t size = fread(inner, 1, sizeof inner - 1, in);
    inner[size] = '\0';
    fclose(in);
    ck_assert_int_eq(mkdir(at("inside"), 0777), 0);
    FILE *out = fopen(at("inside/config.json"), "wb");
    fprintf(out, "{\"model_type\": \"gemma3\", \"text_config\": %s, \"vision_config\": {}}", inner);
    ck_assert_int_eq(fclose(out), 0);
    snprintf(path, sizeof path, "%s/model.safetensors", hf);
    copy_with_prefix(path, at("inside/model.safetensors"), prefixes[_i]);
    ck_assert_ok(
        convert_model(at("inside"), at("f.gguf"), tsr_convert_params(.dtype = TSR_F16), NULL));
    tsr_shard_list *list = open_list(gguf);
    ck_assert_int_eq(compare(at("f.gguf"), gguf), (int)tsr_shard_list_param_count(list));
    tsr_shard_list_destroy(&list);
}
END_TEST

TESTS(convert)
{
    tcase_add_checked_fixture(tests, open_work, close_work);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, stories_equal_the_recorded_files);
    tcase_add_test(tests, a_synthetic_model_equals_the_recorded_files);
    tcase_add_test(tests, mixtures_have_the_types_of_llama_cpp);
    tcase_add_test(tests, mixtures_equal_the_recorded_files);
    tcase_add_test(tests, mixtures_are_checked);
    tcase_add_test(tests, families_there_and_back);
    tcase_add_loop_test(tests, recorded_families_there_and_back, 0,
                        (int)(sizeof recorded / sizeof *recorded));
    tcase_add_loop_test(tests, next_token_layers_travel, 0, 3);
    tcase_add_test(tests, experts_there_and_back);
    tcase_add_test(tests, merged_experts_are_read);
    tcase_add_test(tests, arranged_experts_are_read);
    tcase_add_test(tests, joined_delta_nets_are_read);
    tcase_add_test(tests, mixtral_with_other_names);
    tcase_add_loop_test(tests, text_models_inside_others, 0, 2);
    tcase_add_test(tests, llama_3);
    tcase_add_loop_test(tests, tokenizers_travel, 0, 3);
    tcase_add_loop_test(tests, chat_templates_travel, 0, 2);
    tcase_add_loop_test(tests, end_tokens_travel, 0, 2);
    tcase_add_test(tests, exact_gelu);
    tcase_add_test(tests, an_index_is_followed);
    tcase_add_test(tests, gguf_files_of_one_model);
    tcase_add_test(tests, scores_come_from_tokenizer_model);
    tcase_add_loop_test(tests, added_tokens_come_from_tokenizer_json, 0, 4);
    tcase_add_test(tests, tokens_of_phi3_include_spaces);
    tcase_add_loop_test(tests, other_tokens_that_include_spaces_are_refused, 0, 3);
    tcase_add_test(tests, added_tokens_travel);
    tcase_add_test(tests, words_by_classes_travel);
    tcase_add_test(tests, whole_words_that_merging_does_not_make_are_refused);
    tcase_add_loop_test(tests, byte_level_tokenizers_are_refused, 0, 5);
    tcase_add_test(tests, vectors_of_blocks_are_refused);
    tcase_add_test(tests, configurations_are_refused);
    tcase_add_test(tests, tokenizers_are_refused);
    tcase_add_test(tests, a_tokenizer_of_characters);
    tcase_add_test(tests, a_tokenizer_of_gemma_4);
    tcase_add_test(tests, a_vocabulary_that_is_too_small);
    tcase_add_test(tests, destinations_are_checked);
    tcase_add_test(tests, a_conversion_that_stops_leaves_nothing);
#ifndef _WIN32
    tcase_add_test(tests, a_full_disk_is_an_error);
#endif
    tcase_add_test(tests, elements_that_a_type_cannot_hold);
    tcase_add_test(tests, elements_that_are_no_numbers);
    tcase_add_test(tests, matrices_that_keep_their_type_are_counted);
    tcase_add_test(tests, memory_runs_out);
}
