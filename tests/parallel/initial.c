/* The initial values of layers, and dropout masks, are the same for any number of ranks and any
 * partition. The hashes below were computed on the host by one process. */
#include "base/hash.h"
#include "base/philox.h"
#include "base/variate.h"
#include "parallel/internal.h"
#include "parallel/spmd.h"
#include "support/gpu.h"
#include "support/sha256.h"

#define IN 31
#define OUT 37
#define SEED UINT64_C(0x123456789abcdef)

/* Returns one of two partitions, whose ranges are very different. */
static const tsr_partition_params *partition(int kind)
{
    static double rates[64];
    static const tsr_partition_params params[2] = {
        {.struct_size = sizeof params[0], .kind = TSR_PARTITION_UNEVEN},
        {.struct_size = sizeof params[0], .kind = TSR_PARTITION_WEIGHTED, .rates = rates}};
    for (int r = 0; r < 64; r++)
        rates[r] = r % 3 * (r + 1) + (r == 0);
    return &params[kind];
}

/* Returns element i of a parameter, computed on the host. */
static float expected(const char *name, bool normal, float scale, int64_t i)
{
    uint32_t word =
        tsr__philox_word(SEED, tsr__hash(TSR__HASH_START, name, strlen(name)), (uint64_t)i);
    return normal ? 0 + scale * tsr__normal_from_word(word)
                  : tsr__uniform_from_word(word, -scale, scale);
}

static void digest_of(const tsr_layer *layer, int index, char text[65])
{
    tsr_tensor *whole = NULL;
    uint64_t size_bytes;
    OK(tsr_layer_gather_parameter(layer, index, &whole));
    uint8_t *data = bytes_of(whole, &size_bytes);
    sha256_hex(data, size_bytes, text);
    free(data);
    tsr_tensor_destroy(&whole);
}

static void host_digest(const char *name, bool normal, float scale, int64_t count, tsr_dtype dtype,
                        char text[65])
{
    uint64_t size_bytes = (uint64_t)count * tsr_dtype_size(dtype);
    uint8_t *data = malloc(size_bytes);
    CHECK(data, "no memory");
    for (int64_t i = 0; i < count; i++)
        gpu_store_bits(data, i, dtype, gpu_bits((double)expected(name, normal, scale, i), dtype));
    sha256_hex(data, size_bytes, text);
    free(data);
}

CASE(sha256, "SHA-256 of known texts")
{
    char text[65];
    sha256_hex("abc", 3, text);
    CHECK(strcmp(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad") == 0,
          "%s", text);
}

CASE(initial_weights, "initial: the whole weight is the same for any number of ranks, any "
                      "partition and both kinds of layer")
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    char want[65], got[65];
    for (int i = 0; i < 12; i++) {
        tsr_linear_params params = {.struct_size = sizeof params,
                                    .group = i % 2 ? staged : group,
                                    .name = "model.mlp",
                                    .input_size = IN,
                                    .output_size = OUT,
                                    .dtype = dtypes[i / 4],
                                    .partition = partition(i / 2 % 2),
                                    .init = tsr_init_params(.seed = SEED),
                                    .bias = true};
        tsr_layer *layer = NULL;
        OK(i % 2 ? tsr_row_linear_create(&params, &layer)
                 : tsr_column_linear_create(&params, &layer));
        host_digest("model.mlp.weight", true, (float)sqrt(2.0 / (IN + OUT)), (int64_t)IN * OUT,
                    dtypes[i / 4], want);
        digest_of(layer, 0, got);
        CHECK(strcmp(got, want) == 0, "%s layer %d: %s, not %s", tsr_dtype_name(dtypes[i / 4]), i,
              got, want);
        if (i == 0)
            CHECK(strcmp(got, "927c9cc899cc7792a292dc680361716b6e109b688c873dc2b547319288ece46f") ==
                      0,
                  "the weight has changed: %s", got);
        tsr_layer_destroy(&layer);
    }
}

/* The parameters of latent attention that the ranks divide, or all have. */
static void check_latents(int kind)
{
    static const struct {
        const char *name;
        int64_t count, sizes; /* the sum of fan-in and fan-out */
    } weights[] = {{"q_b.weight", 5 * 7 * 6, 5 * 7 + 6},
                   {"kv_a.weight", 12 * 10, 12 + 10},
                   {"k_b.weight", 5 * 8 * 3, 8 + 3},
                   {"v_b.weight", 5 * 2 * 8, 8 + 2}};
    tsr_layer *layer = NULL;
    OK(tsr_latent_attention_create(
        tsr_latent_attention_params(.name = "l", .size = 10, .heads = 5, .q_lora_rank = 6,
                                    .kv_lora_rank = 8, .nope_dim = 3, .rope_dim = 4, .value_dim = 2,
                                    .partition = partition(kind),
                                    .init = tsr_init_params(.seed = SEED)),
        &layer));
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
        char name[32], want[65], got[65];
        const tsr_parameter *found = NULL;
        int index = 0;
        snprintf(name, sizeof name, "l.%s", weights[i].name);
        OK(tsr_layer_find_parameter(layer, name, &found));
        while (tsr_layer_parameter(layer, index) != found)
            index++;
        host_digest(name, true, (float)sqrt(2.0 / (double)weights[i].sizes), weights[i].count,
                    TSR_F32, want);
        digest_of(layer, index, got);
        CHECK(strcmp(got, want) == 0, "%s: %s, not %s", name, got, want);
    }
    tsr_layer_destroy(&layer);
}

CASE(initial_latents, "initial: weights of latent attention are the same for any number of ranks")
{
    check_latents(0);
    check_latents(1);
}

CASE(initial_kinds, "initial: each kind has the range of the full layer's fan-in and fan-out")
{
    static const struct {
        tsr_init kind;
        bool normal;
        double square; /* the square of the weight's scale */
        double bias;   /* the scale of the bias; 0: biases are 0 */
    } kinds[] = {
        {TSR_INIT_XAVIER_NORMAL, true, 2.0 / (IN + OUT), 0},
        {TSR_INIT_XAVIER_UNIFORM, false, 6.0 / (IN + OUT), 0},
        {TSR_INIT_KAIMING_NORMAL, true, 2.0 / IN, 0},
        {TSR_INIT_TORCH, false, 1.0 / IN, 1.0 / IN},
        {TSR_INIT_NORMAL, true, 0.0625, 0},
    };
    char want[65], got[65];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int row = 0; row < 2; row++) {
            tsr_layer *layer = NULL;
            tsr_linear_params params = {
                .struct_size = sizeof params,
                .input_size = IN,
                .output_size = OUT,
                .partition = partition(row),
                .init = tsr_init_params(.kind = kinds[i].kind, .seed = SEED, .deviation = 0.25F),
                .bias = true};
            OK(row ? tsr_row_linear_create(&params, &layer)
                   : tsr_column_linear_create(&params, &layer));
            host_digest("weight", kinds[i].normal, (float)sqrt(kinds[i].square), (int64_t)IN * OUT,
                        TSR_F32, want);
            digest_of(layer, 0, got);
            CHECK(strcmp(got, want) == 0, "kind %d: %s, not %s", (int)kinds[i].kind, got, want);
            if (kinds[i].bias > 0) {
                host_digest("bias", false, (float)sqrt(kinds[i].bias), OUT, TSR_F32, want);
            } else {
                static const float zeros[OUT];
                sha256_hex(zeros, sizeof zeros, want);
            }
            digest_of(layer, 1, got);
            CHECK(strcmp(got, want) == 0, "bias of kind %d: %s, not %s", (int)kinds[i].kind, got,
                  want);
            tsr_layer_destroy(&layer);
        }
}

CASE(initial_ranges, "initial: any range of a rank's part can be drawn by itself")
{
    for (int row = 0; row < 2; row++) {
        tsr_layer *layer = NULL, *deferred = NULL;
        tsr_linear_params params = {.struct_size = sizeof params,
                                    .input_size = IN,
                                    .output_size = OUT,
                                    .partition = partition(row),
                                    .init = tsr_init_params(.kind = TSR_INIT_TORCH, .seed = SEED),
                                    .bias = true};
        OK(row ? tsr_row_linear_create(&params, &layer)
               : tsr_column_linear_create(&params, &layer));
        params.deferred = true;
        OK(row ? tsr_row_linear_create(&params, &deferred)
               : tsr_column_linear_create(&params, &deferred));
        CHECK(!tsr_layer_parameter(deferred, 0)->tensor, "a deferred layer has memory");
        for (int index = 0; index < 2; index++) {
            double *want = values_of(tsr_layer_parameter(layer, index)->tensor);
            int64_t count =
                tsr_layout_count(tsr_tensor_layout(tsr_layer_parameter(layer, index)->tensor));
            for (int i = 0; i < 20; i++) {
                int64_t a = (int64_t)((number(7, i) + 1) / 2 * (double)(count + 1));
                int64_t b = (int64_t)((number(8, i) + 1) / 2 * (double)(count + 1));
                int64_t first = i == 0 ? 0 : a < b ? a : b, end = i == 0 ? count : a < b ? b : a;
                tsr_tensor *out = tensor_new(TSR_F32, 1, (int64_t[]){end - first});
                OK(tsr__layer_initial(deferred, index, queue, first, out));
                double *got = values_of(out);
                for (int64_t e = 0; e < end - first; e++)
                    CHECK(got[e] == want[first + e],
                          "row %d: element %lld of %lld…%lld is %g, not %g", row, (long long)e,
                          (long long)first, (long long)end, got[e], want[first + e]);
                free(got);
                tsr_tensor_destroy(&out);
            }
            free(want);
        }
        tsr_layer_destroy(&deferred);
        tsr_layer_destroy(&layer);
    }
}

CASE(initial_mistakes, "initial: a range outside the part is an error")
{
    tsr_layer *layer = NULL;
    tsr_tensor *out = tensor_new(TSR_F32, 1, (int64_t[]){4});
    OK(tsr_column_linear_create(
        tsr_linear_params(.input_size = 5, .output_size = 3 * ranks, .bias = true), &layer));
    OK(tsr__layer_initial(layer, 0, queue, 11, out));
    FAILS(tsr__layer_initial(layer, 0, queue, 12, out), TSR_ERR_INVALID,
          "layer_initial: 4 elements from 12 on, but this rank's part of weight has 15");
    FAILS(tsr__layer_initial(layer, 0, queue, INT64_MAX, out), TSR_ERR_INVALID,
          "layer_initial: 4 elements from 9223372036854775807 on, but this rank's part of weight "
          "has 15");
    FAILS(tsr__layer_initial(layer, 0, queue, INT64_MIN, out), TSR_ERR_INVALID,
          "layer_initial: 4 elements from -9223372036854775808 on, but this rank's part of weight "
          "has 15");
    tsr_tensor_destroy(&out);
    tsr_layer_destroy(&layer);
}

CASE(only_its_shard, "initial: a rank allocates only its part")
{
    uint64_t before, after;
    tsr_layer *layer = NULL;
    const int64_t in = 1024 * ranks, out = 256;
    tsr_device_memory_usage(gpu, NULL, &before);
    OK(tsr_row_linear_create(tsr_linear_params(.input_size = in, .output_size = out, .bias = true),
                             &layer));
    OK(tsr_stream_wait(queue));
    tsr_device_memory_usage(gpu, NULL, &after);
    uint64_t own = 1024 * 256 * 4 + 256 * 4;
    CHECK(after - before >= own && after - before <= own + 16384, "%llu bytes for %llu",
          (unsigned long long)(after - before), (unsigned long long)own);
    tsr_layer_destroy(&layer);
}

CASE(dropout_masks, "initial: dropout masks are the same for any number of ranks")
{
    enum { A = 5, B = 41, C = 6 };
    const int64_t shape[] = {A, B, C};
    const tsr_random_params params = {.struct_size = sizeof params, .seed = 11, .subsequence = 3};
    double *x = numbers(9, (int64_t)A * B * C, TSR_F32);
    tsr_tensor *whole = tensor_of(TSR_F32, 3, shape, x);
    OK(tsr_dropout(queue, whole, whole, 0.3F, &params));
    double *want = values_of(whole);
    for (int dim = 0; dim < 3; dim++) {
        tsr_shard_range ranges[64];
        OK(tsr_partition((uint64_t)shape[dim], ranks, partition(dim % 2), ranges));
        int64_t start = (int64_t)ranges[my_rank].start, count = (int64_t)ranges[my_rank].count;
        int64_t part[] = {A, B, C};
        part[dim] = count;
        double *mine = slice_of(x, 3, shape, dim, start, count);
        double *expect = slice_of(want, 3, shape, dim, start, count);
        tsr_tensor *tensor = tensor_of(TSR_F32, 3, part, mine);
        /* The elements have the indices that they have in the full tensor. */
        const int64_t strides[] = {B * C, C, 1};
        tsr_random_params of_part = params;
        of_part.offset = (uint64_t)(start * strides[dim]);
        of_part.index_strides = strides;
        OK(tsr_dropout(queue, tensor, tensor, 0.3F, &of_part));
        double *got = values_of(tensor);
        for (int64_t i = 0; i < count_of(3, part); i++)
            CHECK(got[i] == expect[i], "dim %d: element %lld is %g, not %g", dim, (long long)i,
                  got[i], expect[i]);
        free(got);
        free(mine);
        free(expect);
        tsr_tensor_destroy(&tensor);
    }
    free(x);
    free(want);
    tsr_tensor_destroy(&whole);
}
