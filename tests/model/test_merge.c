/* Tests conversions that add an adapter to the weights: against sums in double precision, between
 * the formats of files, and with adapters that do not fit. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "model/made.h"
#include "model/open.h"
#include "model/weights/files.h" /* must come before shard/files.h, which declares the type `bytes` */
#include "shard/files.h"
#include "shard/formats/gguf_write.h"
#include "support/check_main.h"
#include "tessera/convert.h"

enum { RANK = 3 };
#define ALPHA 4.5
#define SCALE (ALPHA / RANK)
#define PREFIX "base_model.model."
/* how names of tensors in Hugging Face files begin */
#define PLACE (base.family.learned_positions ? "transformer." : "model.")

static folder work;
static made_model base;

static void open_work(void)
{
    work = folder_create();
}

static void close_work(void)
{
    made_finish(&base);
    folder_destroy(&work);
}

/* Returns the path of a file in the test's folder. The last 16 returned paths are valid. */
static const char *at(const char *name)
{
    static char paths[16][160];
    static int next;
    char *path = paths[next++ % 16];
    snprintf(path, 160, "%s/%s", work.path, name);
    return path;
}

/* Adapters ------------------------------------------------------------------------------------- */

/* Returns an element of A (0) or B (1) of tensor `index` of the model. */
static float element(int index, int which, int64_t row, int64_t column)
{
    const uint32_t hash = ((uint32_t)index * 7919U + (uint32_t)which * 104729U +
                           (uint32_t)row * 31U + (uint32_t)column * 613U) *
                          2654435761U;
    return (float)(hash >> 8) / 16777216.0f - 0.5f;
}

/* Returns whether a tensor of the model gets an adapter, and the inputs and outputs of its matrix.
 */
static bool adapts(int index, int64_t *inputs, int64_t *outputs)
{
    const made_tensor *t = &base.tensors[index];
    const bool inside = strncmp(t->name, "layers.", 7) == 0 || strncmp(t->name, "h.", 2) == 0;
    if (t->ndim != 2 || !inside)
        return false;
    *inputs = t->shape[base.family.transposed ? 0 : 1];
    *outputs = t->shape[base.family.transposed ? 1 : 0];
    return true;
}

/* Writes a PEFT folder with an adapter for every matrix of every layer. `config` replaces
 * adapter_config.json. The tensor called `without` is left out, `other` has another shape. */
static const char *write_peft(const char *config, const char *without, const char *other)
{
    static char place[160];
    static char header[1 << 16];
    static float values[1 << 16];
    char usual[256];
    size_t used = 0, count = 0;
    snprintf(usual, sizeof usual,
             "{\"peft_type\": \"LORA\", \"r\": %d, \"lora_alpha\": %g, \"use_rslora\": false, "
             "\"bias\": \"none\", \"target_modules\": [\"q_proj\"]}",
             RANK, ALPHA);
    snprintf(place, sizeof place, "%s/adapter", work.path);
    mkdir(place, 0777);
    for (int i = 0; i < 2 * base.count; i++) {
        int64_t inputs, outputs;
        char name[160];
        const int which = i % 2;
        if (!adapts(i / 2, &inputs, &outputs))
            continue;
        const char *tensor = base.tensors[i / 2].name;
        snprintf(name, sizeof name, PREFIX "%s%.*s.lora_%c.weight", PLACE,
                 (int)(strlen(tensor) - strlen(".weight")), tensor, which ? 'B' : 'A');
        if (without && strstr(name, without))
            continue;
        int64_t rows = which ? outputs : RANK, columns = which ? RANK : inputs;
        rows += other && strstr(name, other) ? 1 : 0;
        used += (size_t)snprintf(header + used, sizeof header - used,
                                 "%c\"%s\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":"
                                 "[%zu,%zu]}",
                                 used == 0 ? '{' : ',', name, (int)rows, (int)columns, 4 * count,
                                 4 * (count + (size_t)(rows * columns)));
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < columns; c++)
                values[count++] = element(i / 2, which, r, c);
    }
    used += (size_t)snprintf(header + used, sizeof header - used, "}");
    FILE *file = fopen(at("adapter/adapter_config.json"), "w");
    ck_assert(file && fputs(config ? config : usual, file) >= 0 && fclose(file) == 0);
    file = fopen(at("adapter/adapter_model.safetensors"), "wb");
    ck_assert_ptr_nonnull(file);
    for (int i = 0; i < 8; i++)
        fputc((int)((uint64_t)used >> (8 * i) & 255), file);
    fwrite(header, 1, used, file);
    fwrite(values, sizeof *values, count, file);
    ck_assert_int_eq(fclose(file), 0);
    return place;
}

static void has_status(tsr_status status)
{
    ck_assert_msg(status == TSR_OK, "%s", tsr_last_error());
}

/* The name that GGUF files have for a matrix of Llama. */
static void gguf_name(const char *tensor, char *out, size_t size)
{
    static const char *const names[][2] = {
        {"self_attn.q_proj", "attn_q"}, {"self_attn.k_proj", "attn_k"},
        {"self_attn.v_proj", "attn_v"}, {"self_attn.o_proj", "attn_output"},
        {"mlp.gate_proj", "ffn_gate"},  {"mlp.up_proj", "ffn_up"},
        {"mlp.down_proj", "ffn_down"}};
    int layer = -1;
    ck_assert_int_eq(sscanf(tensor, "layers.%d.", &layer), 1);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strstr(tensor, names[i][0]))
            snprintf(out, size, "blk.%d.%s.weight", layer, names[i][1]);
}

/* Writes the adapter of a Llama as llama.cpp's converter does: rows of B of q and k are in the
 * order of adjacent pairs. */
static const char *write_gguf(const char *type, const char *architecture)
{
    tsr__gguf_writer w = {0};
    uint8_t *header = NULL;
    size_t size = 0;
    uint64_t offset, size_bytes;
    has_status(
        tsr__gguf_put_string(&w, "general.architecture", architecture, strlen(architecture)));
    has_status(tsr__gguf_put_string(&w, "general.type", type, strlen(type)));
    has_status(tsr__gguf_put_string(&w, "adapter.type", "lora", 4));
    has_status(tsr__gguf_put_f32(&w, "adapter.lora.alpha", (float)ALPHA));
    static float values[1 << 16];
    static struct {
        uint64_t offset;
        size_t first, count;
    } places[2 * MADE_MOST_TENSORS];
    size_t count = 0;
    int tensors = 0;
    for (int i = 0; i < 2 * base.count; i++) {
        int64_t inputs, outputs;
        char tensor[64], name[80];
        if (!adapts(i / 2, &inputs, &outputs))
            continue;
        gguf_name(base.tensors[i / 2].name, tensor, sizeof tensor);
        snprintf(name, sizeof name, "%s.lora_%c", tensor, i % 2 ? 'b' : 'a');
        const bool pairs = i % 2 && (strstr(name, "attn_q") || strstr(name, "attn_k"));
        const int64_t rows = i % 2 ? outputs : RANK, columns = i % 2 ? RANK : inputs,
                      head = MADE_HEAD_DIM;
        const tsr_shard_param param = {
            .name = name, .dtype = "f32", .ndim = 2, .shape = {rows, columns}};
        has_status(tsr__gguf_put_tensor(&w, &param, &offset, &size_bytes));
        places[tensors].offset = offset;
        places[tensors].first = count;
        places[tensors++].count = (size_t)(rows * columns);
        for (int64_t r = 0; r < rows; r++) {
            const int64_t in = r % head, ours = pairs ? r - in + in % 2 * (head / 2) + in / 2 : r;
            for (int64_t c = 0; c < columns; c++)
                values[count++] = element(i / 2, i % 2, ours, c);
        }
    }
    has_status(tsr__gguf_header(&w, &header, &size));
    static char path[160];
    snprintf(path, sizeof path, "%s/adapter.gguf", work.path);
    FILE *file = fopen(path, "wb");
    ck_assert(file && fwrite(header, 1, size, file) == size);
    for (int i = 0; i < tensors; i++) {
        ck_assert_int_eq(fseek(file, (long)(size + places[i].offset), SEEK_SET), 0);
        ck_assert_uint_eq(fwrite(values + places[i].first, 4, places[i].count, file),
                          places[i].count);
    }
    ck_assert_int_eq(fclose(file), 0);
    tsr__free(header);
    tsr__gguf_writer_finish(&w);
    return path;
}

/* Comparing ------------------------------------------------------------------------------------ */

static uint8_t *read_tensor(const char *path, const tsr_shard_param *p)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(p->size_bytes + 1);
    ck_assert(file && data && fseek(file, (long)p->offset_bytes, SEEK_SET) == 0);
    ck_assert_uint_eq(fread(data, 1, p->size_bytes, file), p->size_bytes);
    fclose(file);
    return data;
}

static tsr_shard_list *open_list(const char *path)
{
    tsr_shard_list *list = NULL;
    has_status(tsr_shard_list_open(path, &list));
    return list;
}

/* Checks that two files have the same tensors, bit for bit. */
static void expect_same(const char *a_path, const char *b_path)
{
    tsr_shard_list *a = open_list(a_path), *b = open_list(b_path);
    ck_assert_uint_eq(tsr_shard_list_param_count(a), tsr_shard_list_param_count(b));
    for (uint64_t i = 0; i < tsr_shard_list_param_count(a); i++) {
        const tsr_shard_param *p = tsr_shard_list_param(a, i), *q = tsr_shard_list_param(b, i);
        ck_assert_str_eq(p->name, q->name);
        ck_assert_str_eq(p->dtype, q->dtype);
        ck_assert_uint_eq(p->size_bytes, q->size_bytes);
        uint8_t *x = read_tensor(a_path, p), *y = read_tensor(b_path, q);
        ck_assert_msg(memcmp(x, y, p->size_bytes) == 0, "%s: other bytes", p->name);
        free(x);
        free(y);
    }
    tsr_shard_list_destroy(&a);
    tsr_shard_list_destroy(&b);
}

/* Checks a file of f32 tensors, with Hugging Face's names, against W + times · scale · B A. */
static void expect_sums(const char *path, double times, double tolerance)
{
    tsr_shard_list *list = open_list(path);
    for (int i = 0; i < base.count; i++) {
        const made_tensor *t = &base.tensors[i];
        const tsr_shard_param *p = NULL;
        for (uint64_t j = 0; j < tsr_shard_list_param_count(list); j++) {
            const char *name = tsr_shard_list_param(list, j)->name,
                       *inside =
                           strncmp(name, PLACE, strlen(PLACE)) == 0 ? name + strlen(PLACE) : name;
            if (strcmp(inside, t->name) == 0)
                p = tsr_shard_list_param(list, j);
        }
        ck_assert_msg(p && strcmp(p->dtype, "f32") == 0, "%s is not there", t->name);
        float *values = (float *)(void *)read_tensor(path, p);
        const int64_t columns = t->ndim == 2 ? t->shape[1] : 1;
        int64_t inputs, outputs;
        for (int64_t e = 0; e < t->shape[0] * columns; e++) {
            double wanted = (double)t->values[e];
            const int64_t row = e / columns, column = e % columns;
            for (int r = 0; adapts(i, &inputs, &outputs) && r < RANK; r++)
                wanted += times * SCALE *
                          (double)element(i, 1, base.family.transposed ? column : row, r) *
                          (double)element(i, 0, r, base.family.transposed ? row : column);
            ck_assert_msg(fabs(wanted - (double)values[e]) <= tolerance,
                          "%s, element %d: %g, not %g", t->name, (int)e, (double)values[e], wanted);
        }
        free(values);
    }
    tsr_shard_list_destroy(&list);
}

/* Tests ---------------------------------------------------------------------------------------- */

static void merge(const char *source, const char *destination, tsr_convert_params params)
{
    tsr_convert_stats stats = TSR_INIT(tsr_convert_stats);
    params.struct_size = sizeof params;
    params.replace = true;
    has_status(convert_model(source, destination, &params, &stats));
    if (params.adapter)
        ck_assert_uint_gt(stats.merged, 0);
}

/* Every family, from its folder to a folder and to a GGUF file, and from a GGUF file. In GPT-2's
 * folders, one tensor holds q, k and v, and matrices are transposed. */
START_TEST(products_are_added)
{
    char gguf[200];
    made_init(&base, &made_families[_i], 77);
    const char *folder_of = made_write_hf(&base), *adapter = write_peft(NULL, NULL, NULL);
    char source[200];
    snprintf(source, sizeof source, "%s", folder_of);
    merge(source, at("m"), (tsr_convert_params){.adapter = adapter});
    expect_sums(at("m/model.safetensors"), 1, 1e-6);
    merge(source, at("half"), (tsr_convert_params){.adapter = adapter, .adapter_scale = -0.5});
    expect_sums(at("half/model.safetensors"), -0.5, 1e-6);
    merge(source, at("none"), (tsr_convert_params){.adapter = adapter, .adapter_scale = TSR_ZERO});
    expect_sums(at("none/model.safetensors"), 0, 0);
    if (_i == 0 || _i == 3) /* GGUF files cannot express their scaling and their window */
        return;
    merge(at("m"), at("converted.gguf"), (tsr_convert_params){0});
    merge(source, at("m.gguf"), (tsr_convert_params){.adapter = adapter});
    expect_same(at("m.gguf"), at("converted.gguf"));
    snprintf(gguf, sizeof gguf, "%s", made_write_gguf(&base, 1));
    merge(gguf, at("m.gguf"), (tsr_convert_params){.adapter = adapter});
    expect_same(at("m.gguf"), at("converted.gguf"));
    merge(gguf, at("back"), (tsr_convert_params){.adapter = adapter});
    expect_sums(at("back/model.safetensors"), 1, 1e-6);
}
END_TEST

/* An adapter as a GGUF file gives the same bits as the PEFT folder, also with blocks. */
START_TEST(gguf_adapters_and_blocks)
{
    char source[200];
    made_init(&base, &made_families[2], 78);
    snprintf(source, sizeof source, "%s", made_write_hf(&base));
    merge(source, at("peft"), (tsr_convert_params){.adapter = write_peft(NULL, NULL, NULL)});
    const char *adapter = write_gguf("adapter", "llama");
    merge(source, at("gguf"), (tsr_convert_params){.adapter = adapter});
    expect_same(at("peft/model.safetensors"), at("gguf/model.safetensors"));
    merge(source, at("m.gguf"), (tsr_convert_params){.adapter = adapter, .dtype = TSR_Q8_0});
    merge(at("peft"), at("converted.gguf"), (tsr_convert_params){.dtype = TSR_Q8_0});
    expect_same(at("m.gguf"), at("converted.gguf"));
    /* Blocks are added to as numbers: a base in q8_0 is within its rounding. */
    merge(source, at("q8_0.gguf"), (tsr_convert_params){.dtype = TSR_Q8_0});
    merge(at("q8_0.gguf"), at("m"), (tsr_convert_params){.adapter = at("adapter.gguf")});
    expect_sums(at("m/model.safetensors"), 1, 0.01);
    merge(at("q8_0.gguf"), at("m.gguf"), (tsr_convert_params){.adapter = at("adapter.gguf")});
    merge(at("m.gguf"), at("m"), (tsr_convert_params){0});
    expect_sums(at("m/model.safetensors"), 1, 0.03);
}
END_TEST

static void refuses(const char *source, const char *adapter, tsr_status status,
                    const char *sentence)
{
    ck_assert_int_eq(
        convert_model(source, at("refused"), tsr_convert_params(.adapter = adapter), NULL), status);
    ck_assert_msg(strstr(tsr_last_error(), sentence) != NULL, "'%s' has no '%s'", tsr_last_error(),
                  sentence);
    ck_assert_int_ne(access(at("refused"), F_OK), 0);
}

START_TEST(adapters_that_do_not_fit)
{
    static const struct {
        const char *config, *without, *other;
        tsr_status status;
        const char *sentence;
    } cases[] = {
        {NULL, "layers.1.mlp.up_proj.lora_B", NULL, TSR_ERR_NOT_FOUND,
         "layers.1.mlp.up_proj.lora_A.weight, but not its other half, base_model.model.model."
         "layers.1.mlp.up_proj.lora_B.weight"},
        {NULL, "layers.0.self_attn.q_proj.lora_A", NULL, TSR_ERR_NOT_FOUND,
         "q_proj.lora_B.weight, but not its other half, base_model.model.model.layers.0.self_attn."
         "q_proj.lora_A.weight"},
        {NULL, NULL, "k_proj.lora_B", TSR_ERR_INVALID,
         "k_proj.lora_B.weight is [17,3]; the model needs [16,3]"},
        {"{\"r\": 2, \"lora_alpha\": 2}", NULL, NULL, TSR_ERR_INVALID,
         "has rank 3; adapter_config.json says 2"},
        {"{\"r\": 3, \"lora_alpha\": 2, \"use_dora\": true}", NULL, NULL, TSR_ERR_NOT_FOUND,
         "use_dora, but there is no tensor"},
        {"{}", NULL, NULL, TSR_ERR_INVALID, "there is no r"},
    };
    char source[200];
    made_init(&base, &made_families[0], 79);
    snprintf(source, sizeof source, "%s", made_write_hf(&base));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *adapter = write_peft(cases[i].config, cases[i].without, cases[i].other);
        refuses(source, adapter, cases[i].status, cases[i].sentence);
    }
    refuses(source, "/proc/nonexistent", TSR_ERR_NOT_FOUND, "/proc/nonexistent");
    refuses(source, write_gguf("adapter", "qwen2"), TSR_ERR_INVALID,
            "the adapter is for architecture 'qwen2'; the model's is 'llama'");
    refuses(source, write_gguf("model", "llama"), TSR_ERR_INVALID,
            "is no adapter: its general.type is 'model'");
    refuses(source, made_write_gguf(&base, 1), TSR_ERR_INVALID,
            "is no adapter: it has no general.type");
    refuses(source, at("adapter/adapter_model.safetensors"), TSR_ERR_INVALID,
            "is neither a PEFT folder nor a GGUF file");
    /* An adapter of a larger model has tensors that this one lacks. */
    made_finish(&base);
    made_init(&base, &made_families[4], 79);
    const char *adapter = write_peft(NULL, NULL, NULL);
    static char two[200];
    snprintf(two, sizeof two, "%s", TEST_DATA "/model/stories260K-hf");
    refuses(two, adapter, TSR_ERR_INVALID, "lora_A.weight is [3,32]; the model needs [3,64]");
    made_finish(&base);
    made_init(&base, &made_families[5], 79);
    refuses(two, write_peft(NULL, NULL, NULL), TSR_ERR_INVALID,
            "the model has no weight for the adapter's tensor base_model.model.transformer.h.0.");
}
END_TEST

/* A weight in a format that tsr_quantize does not write, iq4_nl, which has as many bytes as q4_0.
 */
START_TEST(formats_that_cannot_be_written)
{
    static const char name[] = "blk.0.attn_q.weight";
    static uint8_t data[1 << 20];
    char source[200];
    made_init(&base, &made_families[2], 80);
    snprintf(source, sizeof source, "%s", made_write_hf(&base));
    merge(source, at("q4_0.gguf"), (tsr_convert_params){.dtype = TSR_Q4_0});
    FILE *file = fopen(at("q4_0.gguf"), "r+b");
    ck_assert_ptr_nonnull(file);
    const size_t size = fread(data, 1, sizeof data, file);
    size_t found = 0;
    for (size_t i = 0; i + sizeof name < size && found == 0; i++)
        if (memcmp(data + i, name, sizeof name - 1) == 0)
            found = i + sizeof name - 1 + 4 + 16; /* the number of dimensions, and two of them */
    ck_assert_int_eq(data[found], 2);
    ck_assert_int_eq(fseek(file, (long)found, SEEK_SET), 0);
    ck_assert(fputc(20, file) == 20 && fclose(file) == 0);
    const char *adapter = write_peft(NULL, NULL, NULL);
    ck_assert_int_eq(
        convert_model(at("q4_0.gguf"), at("m.gguf"), tsr_convert_params(.adapter = adapter), NULL),
        TSR_ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(tsr_last_error(), "blk.0.attn_q.weight is iq4_nl, in which a "
                                                   "changed weight cannot be written; choose"));
    merge(at("q4_0.gguf"), at("m.gguf"),
          (tsr_convert_params){.adapter = adapter, .dtype = TSR_Q8_0});
}
END_TEST

/* Matrices that files have in different orders: of delta nets, and of q and its gate. */
static const struct {
    const char *name;
    int outputs, inputs;
} reordered[] = {{"0.linear_attn.in_proj_qkv", 128, 64},
                 {"0.linear_attn.in_proj_z", 64, 64},
                 {"0.linear_attn.out_proj", 64, 64},
                 {"3.self_attn.q_proj", 192, 64}};
enum { REORDERED = sizeof reordered / sizeof *reordered };

/* Writes a PEFT folder of rank 1 for the first `count` of them. */
static const char *write_reordered(int count)
{
    static char place[160];
    static float values[1024];
    char header[2048], path[160];
    size_t used = 0, floats = 0;
    for (int i = 0; i < 2 * count; i++) {
        const int which = i % 2, size = which ? reordered[i / 2].outputs : reordered[i / 2].inputs;
        used += (size_t)snprintf(
            header + used, sizeof header - used,
            "%c\"" PREFIX "model.layers.%s.lora_%c.weight\":{\"dtype\":\"F32\",\"shape\":"
            "[%d,%d],\"data_offsets\":[%zu,%zu]}",
            i == 0 ? '{' : ',', reordered[i / 2].name, which ? 'B' : 'A', which ? size : 1,
            which ? 1 : size, 4 * floats, 4 * (floats + (size_t)size));
        for (int e = 0; e < size; e++)
            values[floats++] = element(i / 2, which, e, e);
    }
    snprintf(header + used, sizeof header - used, "}");
    bytes all = safetensors_file(header, sizeof(float) * floats);
    memcpy(all.data + all.size - sizeof(float) * floats, values, sizeof(float) * floats);
    static const char config[] = "{\"peft_type\": \"LORA\", \"r\": 1, \"lora_alpha\": 2, "
                                 "\"bias\": \"none\", \"target_modules\": [\"q_proj\"]}";
    snprintf(place, sizeof place, "%s/adapter", work.path);
    mkdir(place, 0777);
    folder_write(&work, "adapter/adapter_config.json", config, sizeof config - 1, path);
    folder_write(&work, "adapter/adapter_model.safetensors", (char *)all.data, all.size, path);
    free(all.data);
    return place;
}

/* Returns the number of the reordered matrix that a tensor is, or -1. */
static int reordered_of(const char *name)
{
    for (int i = 0; i < REORDERED; i++)
        if (strncmp(name, "model.layers.", 13) == 0 &&
            strncmp(name + 13, reordered[i].name, strlen(reordered[i].name)) == 0)
            return i;
    return -1;
}

/* A PEFT adapter has the rows of the folder's tensors, to which its products are added as they are;
 * and what GGUF files get is what the folder with the sums becomes. */
START_TEST(adapters_of_weights_in_other_orders)
{
    static const char source[] = TEST_DATA "/model/families/qwen35moe/hf";
    const char *adapter = write_reordered(REORDERED);
    merge(source, at("plain"), (tsr_convert_params){.dtype = TSR_F32});
    merge(source, at("m"), (tsr_convert_params){.dtype = TSR_F32, .adapter = adapter});
    tsr_shard_list *a = open_list(at("plain/model.safetensors")),
                   *b = open_list(at("m/model.safetensors"));
    int found = 0;
    for (uint64_t i = 0; i < tsr_shard_list_param_count(a); i++) {
        const tsr_shard_param *p = tsr_shard_list_param(a, i);
        float *x = (float *)(void *)read_tensor(at("plain/model.safetensors"), p),
              *y = (float *)(void *)read_tensor(at("m/model.safetensors"),
                                                tsr_shard_list_param(b, i));
        const int m = reordered_of(p->name);
        found += m >= 0;
        for (int64_t e = 0; e < (int64_t)p->size_bytes / 4; e++) {
            const int64_t row = m < 0 ? 0 : e / reordered[m].inputs,
                          column = m < 0 ? 0 : e % reordered[m].inputs;
            const double sum = m < 0 ? 0
                                     : 2.0 * (double)element(m, 1, row, row) *
                                           (double)element(m, 0, column, column);
            ck_assert_msg(fabs((double)x[e] + sum - (double)y[e]) <= (m < 0 ? 0 : 1e-6),
                          "%s, element %d: %g, not %g", p->name, (int)e, (double)y[e],
                          (double)x[e] + sum);
        }
        free(x);
        free(y);
    }
    ck_assert_int_eq(found, REORDERED);
    tsr_shard_list_destroy(&a);
    tsr_shard_list_destroy(&b);
    merge(at("m"), at("converted.gguf"), (tsr_convert_params){.dtype = TSR_F32});
    merge(source, at("m.gguf"), (tsr_convert_params){.dtype = TSR_F32, .adapter = adapter});
    expect_same(at("m.gguf"), at("converted.gguf"));
    merge(source, at("plain.gguf"), (tsr_convert_params){.dtype = TSR_F32});
    merge(at("plain.gguf"), at("m.gguf"), (tsr_convert_params){.adapter = adapter});
    expect_same(at("m.gguf"), at("converted.gguf"));
}
END_TEST

/* Writes an adapter of rank 1 for a matrix of each head, in layer 1 of a model of DeepSeek. */
static const char *write_of_heads(const char *matrix, int64_t inputs, int64_t outputs)
{
    enum { HEADS = 6 };
    static char path[160];
    const int64_t sizes[] = {inputs, outputs};
    tsr__gguf_writer w = {0};
    uint8_t *header = NULL;
    size_t size = 0;
    uint64_t offsets[2], size_bytes;
    has_status(tsr__gguf_put_string(&w, "general.architecture", "deepseek2", 9));
    has_status(tsr__gguf_put_string(&w, "general.type", "adapter", 7));
    has_status(tsr__gguf_put_string(&w, "adapter.type", "lora", 4));
    has_status(tsr__gguf_put_f32(&w, "adapter.lora.alpha", 1));
    for (int i = 0; i < 2; i++) {
        char name[80];
        snprintf(name, sizeof name, "blk.1.%s.weight.lora_%c", matrix, i == 0 ? 'a' : 'b');
        const tsr_shard_param param = {.name = name,
                                       .dtype = "f32",
                                       .ndim = 3,
                                       .shape = {HEADS, i == 0 ? 1 : outputs, i == 0 ? inputs : 1}};
        has_status(tsr__gguf_put_tensor(&w, &param, &offsets[i], &size_bytes));
    }
    has_status(tsr__gguf_header(&w, &header, &size));
    snprintf(path, sizeof path, "%s/heads.gguf", work.path);
    FILE *file = fopen(path, "wb");
    ck_assert(file && fwrite(header, 1, size, file) == size);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(fseek(file, (long)(size + offsets[i]), SEEK_SET), 0);
        for (int64_t e = 0; e < HEADS * sizes[i]; e++) {
            const float value = element(i, i, e / sizes[i], e % sizes[i]);
            ck_assert_uint_eq(fwrite(&value, sizeof value, 1, file), 1);
        }
    }
    ck_assert_int_eq(fclose(file), 0);
    tsr__free(header);
    tsr__gguf_writer_finish(&w);
    return path;
}

/* Folders have the matrices of all heads in one tensor: those of values as rows, which adapters are
 * added to, and those of keys as columns. */
START_TEST(adapters_of_latent_attention)
{
    static const char source[] = TEST_DATA "/model/families/deepseek2/deepseek2-f16.gguf";
    const char *adapter = write_of_heads("attn_v_b", 32, 16);
    merge(source, at("m.gguf"), (tsr_convert_params){.adapter = adapter});
    merge(at("m.gguf"), at("converted"), (tsr_convert_params){0});
    merge(source, at("m"), (tsr_convert_params){.adapter = adapter});
    expect_same(at("m/model.safetensors"), at("converted/model.safetensors"));
    adapter = write_of_heads("attn_k_b", 12, 32);
    merge(source, at("m.gguf"), (tsr_convert_params){.adapter = adapter});
    ck_assert_error(
        convert_model(source, at("refused"), tsr_convert_params(.adapter = adapter), NULL),
        TSR_ERR_UNSUPPORTED,
        "convert: tensor model.layers.1.self_attn.kv_b_proj.weight has the keys of latent "
        "attention as columns, to which no adapter can be added");
}
END_TEST

START_TEST(memory_runs_out)
{
    char source[200];
    made_init(&base, &made_families[2], 81);
    snprintf(source, sizeof source, "%s", made_write_hf(&base));
    const char *adapter = write_peft(NULL, NULL, NULL);
    uint64_t nth = 0, step = 1;
    for (bool reached = true; reached; nth += step) {
        tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
        const tsr_status status =
            convert_model(source, at("m.gguf"), tsr_convert_params(.adapter = adapter), NULL);
        reached = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        ck_assert_int_eq(status, reached ? TSR_ERR_NO_MEMORY : TSR_OK);
        step = nth < 20 ? 1 : 3;
    }
    ck_assert_uint_gt(nth, 50);
}
END_TEST

TESTS(merge)
{
    tcase_add_checked_fixture(tests, open_work, close_work);
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, products_are_added, 0, made_family_count);
    tcase_add_test(tests, gguf_adapters_and_blocks);
    tcase_add_test(tests, adapters_that_do_not_fit);
    tcase_add_test(tests, formats_that_cannot_be_written);
    tcase_add_test(tests, adapters_of_weights_in_other_orders);
    tcase_add_test(tests, adapters_of_latent_attention);
    tcase_add_test(tests, memory_runs_out);
}
