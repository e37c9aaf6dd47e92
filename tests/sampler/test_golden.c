/* Compares the samplers with every case of the golden files, which hold recorded output of PyTorch
 * and of a C# sampler. */
#include "sampler/info.h"
#include "sampler/order/epoch_generators.h"
#include "sampler/read.h"
#include "sampler/sampler.h"
#include "support/golden.h"

/* Compares all epochs of a sampler with a golden list of lists, and the next output of the
 * generator after the last epoch. */
static void check_epochs(const char *id, tsr_sampler *sampler, const json_t *out)
{
    size_t e;
    json_t *epoch;
    json_array_foreach(golden_list(out, "epochs"), e, epoch)
    {
        uint64_t count;
        ck_assert_ok(tsr_sampler_set_epoch(sampler, (int64_t)e));
        int64_t *indices = read_all(sampler, &count);
        const json_t *flat = json_object_get(epoch, "flat");
        if (flat == NULL) {
            golden_compare(id, epoch, indices, count);
            ck_assert_uint_eq(tsr_sampler_length(sampler), count);
        } else {
            /* For batches, the file has the number of all their indices and a hash of them. */
            ck_assert_uint_eq(count, (uint64_t)golden_integer(flat, "count"));
            ck_assert_uint_eq(golden_hash(indices, count),
                              golden_hex(golden_member(flat, "fnv1a64")));
        }
        free(indices);
    }
    if (json_object_get(out, "next_u64") != NULL) {
        ck_assert_ok(tsr_sampler_set_epoch(sampler, (int64_t)e));
        tsr_rng rng = sampler->class_->epoch_generator(sampler)->start;
        if (tsr_rng_next_u64(&rng) != golden_u64(out, "next_u64"))
            ck_abort_msg("%s: the generator stands elsewhere after %zu epochs", id, e);
    }
}

/* Compares the batches of an epoch with the file: their number, the sizes of the first and the last
 * one, and the indices of the batches that the file lists. */
static void check_batches(const char *id, tsr_sampler *sampler, const json_t *epoch)
{
    uint64_t most = info_of(sampler).batch_max, number = 0, got = 0, last = 0;
    int64_t *indices = calloc(most, sizeof *indices);
    const json_t *sizes = golden_member(epoch, "sizes");
    const json_t *listed = json_object_get(epoch, "batches");
    for (;; number++, last = got) {
        ck_assert_ok(tsr_sampler_next(sampler, most, indices, NULL, &got));
        if (got == 0)
            break;
        if (number == 0 && (json_int_t)got != json_integer_value(json_array_get(sizes, 0)))
            ck_abort_msg("%s: the first batch has %" PRIu64 " indices", id, got);
        const json_t *batch = json_array_get(listed, number);
        if (batch != NULL) {
            ck_assert_uint_eq(json_array_size(batch), got);
            golden_part(id, batch, indices);
        }
    }
    ck_assert_uint_eq(number, (uint64_t)golden_integer(epoch, "num_batches"));
    ck_assert_uint_eq(number, tsr_sampler_length(sampler));
    if (number > 0)
        ck_assert_int_eq((json_int_t)last,
                         json_integer_value(json_array_get(sizes, json_array_size(sizes) - 1)));
    free(indices);
}

static bool is_error(const json_t *out)
{
    return json_object_get(out, "error") != NULL;
}

static int64_t seed_of(const json_t *in)
{
    return (int64_t)golden_u64(in, "seed");
}

START_TEST(random_equals_torch)
{
    json_t *document = golden_load("torch_random_sampler"), *one;
    size_t i;
    int errors = 0;
    json_array_foreach(golden_list(document, "cases"), i, one)
    {
        const json_t *in = golden_member(one, "in"), *out = golden_member(one, "out");
        const json_t *samples = golden_member(in, "num_samples");
        tsr_sampler *sampler = NULL;
        tsr_status status = tsr_sampler_create_random(
            tsr_sampler_random_params(
                    .n = (uint64_t)golden_integer(in, "n"), .order = TSR_ORDER_TORCH,
                    .replacement = json_is_true(golden_member(in, "replacement")),
                    .num_samples = json_integer_value(samples), .seed = seed_of(in),
                    .torch = tsr_torch_options(.global_generator =
                                                   strcmp(golden_text(in, "via"), "global") == 0)),
            &sampler);
        if (is_error(out)) {
            /* In this library, unlike in PyTorch, num_samples 0 means the number of items. */
            bool zero = json_is_integer(samples) && json_integer_value(samples) == 0;
            ck_assert_int_eq(status, zero ? TSR_OK : TSR_ERR_INVALID);
            errors++;
        } else {
            ck_assert_ok(status);
            ck_assert_int_eq((json_int_t)tsr_sampler_length(sampler), golden_integer(out, "len"));
            check_epochs(golden_text(one, "id"), sampler, out);
        }
        tsr_sampler_destroy(&sampler);
    }
    ck_assert_uint_eq(i, 67);
    ck_assert_int_eq(errors, 5);
    json_decref(document);
}
END_TEST

static int64_t *indices_of(const json_t *in, uint64_t *count)
{
    const json_t *list = json_object_get(in, "indices"),
                 *formula = json_object_get(in, "indices_formula");
    *count = list != NULL ? json_array_size(list) : (uint64_t)golden_integer(formula, "count");
    int64_t *indices = calloc(*count + 1, sizeof *indices);
    for (uint64_t i = 0; i < *count; i++)
        indices[i] = list != NULL ? json_integer_value(json_array_get(list, i))
                                  : golden_integer(formula, "start") +
                                        golden_integer(formula, "step") * (int64_t)i;
    return indices;
}

START_TEST(subset_equals_torch)
{
    json_t *document = golden_load("torch_subset_random"), *one;
    size_t i;
    json_array_foreach(golden_list(document, "cases"), i, one)
    {
        const json_t *in = golden_member(one, "in"), *out = golden_member(one, "out");
        uint64_t count;
        int64_t *indices = indices_of(in, &count);
        tsr_sampler *sampler = NULL;
        bool is_global = strcmp(golden_text(in, "via"), "global") == 0;
        ck_assert_ok(tsr_sampler_create_subset(
            tsr_sampler_subset_params(.indices = indices, .count = count, .order = TSR_ORDER_TORCH,
                                      .seed = seed_of(in),
                                      .torch = tsr_torch_options(.global_generator = is_global)),
            &sampler));
        check_epochs(golden_text(one, "id"), sampler, out);
        tsr_sampler_destroy(&sampler);
        free(indices);
    }
    ck_assert_uint_eq(i, 16);
    json_decref(document);
}
END_TEST

static double *weights_of(const json_t *in, uint64_t *count)
{
    const json_t *list = json_object_get(in, "weights");
    *count = list != NULL ? json_array_size(list)
                          : (uint64_t)golden_integer(golden_member(in, "weights_formula"), "n");
    double *weights = calloc(*count + 1, sizeof *weights);
    for (uint64_t i = 0; i < *count; i++)
        weights[i] = list != NULL ? json_number_value(json_array_get(list, i))
                                  : (double)((uint32_t)(i * 2654435761u) >> 12) + 1;
    return weights;
}

static void check_weighted(const char *id, const json_t *in, const json_t *out,
                           tsr_torch_version version)
{
    uint64_t count;
    double *weights = weights_of(in, &count);
    float *narrow = calloc(count + 1, sizeof *narrow);
    for (uint64_t i = 0; i < count; i++)
        narrow[i] = (float)weights[i];
    bool is_narrow = strcmp(golden_text(in, "api"), "multinomial_f32") == 0;
    tsr_sampler *sampler = NULL;
    tsr_status status = tsr_sampler_create_weighted(
        tsr_sampler_weighted_params(.weights = is_narrow ? NULL : weights,
                                    .weights_f32 = is_narrow ? narrow : NULL, .count = count,
                                    .num_samples = golden_integer(in, "num_samples"),
                                    .replacement = json_is_true(golden_member(in, "replacement")),
                                    .order = TSR_ORDER_TORCH, .seed = seed_of(in),
                                    .torch = tsr_torch_options(.version = version)),
        &sampler);
    if (is_error(out)) {
        ck_assert_int_eq(status, TSR_ERR_INVALID);
    } else {
        ck_assert_ok(status);
        check_epochs(id, sampler, out);
    }
    tsr_sampler_destroy(&sampler);
    free(weights);
    free(narrow);
}

START_TEST(weighted_equals_torch)
{
    json_t *document = golden_load("torch_weighted_random"), *one;
    size_t i;
    int older_differ = 0;
    json_array_foreach(golden_list(document, "cases"), i, one)
    {
        const char *id = golden_text(one, "id");
        const json_t *in = golden_member(one, "in"), *out = golden_member(one, "out");
        const json_t *older = json_object_get(one, "out_torch_1_13_1");
        check_weighted(id, in, out, TSR_TORCH_DEFAULT);
        check_weighted(id, in, out, TSR_TORCH_2_0);
        check_weighted(id, in, out, TSR_TORCH_2_7);
        check_weighted(id, in, older != NULL ? older : out, TSR_TORCH_1_13);
        older_differ += older != NULL;
    }
    ck_assert_uint_eq(i, 59);
    ck_assert_int_eq(older_differ, 7);
    json_decref(document);
}
END_TEST

/* Splits a seed from −2^63 − 1 to 2^64 − 1 into the two members of the parameters. */
static void wide_seed(const json_t *in, int64_t *seed, int *high)
{
    const char *text = golden_text(in, "seed");
    bool below = strcmp(text, "-9223372036854775809") == 0;
    *seed = below ? INT64_MAX : seed_of(in);
    *high = below ? -1 : text[0] != '-' && *seed < 0 ? 1 : 0;
}

static void check_distributed(const char *id, tsr_sampler *sampler, int64_t epoch,
                              const json_t *out)
{
    tsr_sampler_info info = TSR_INIT(tsr_sampler_info);
    uint64_t count;
    tsr_status status = tsr_sampler_set_epoch(sampler, epoch);
    if (is_error(out)) {
        ck_assert_int_eq(status, TSR_ERR_OVERFLOW);
        return;
    }
    ck_assert_ok(status);
    ck_assert_ok(tsr_sampler_get_info(sampler, &info));
    ck_assert_uint_eq(info.total, (uint64_t)golden_integer(out, "total_size"));
    int64_t *indices = read_all(sampler, &count);
    golden_compare(id, golden_member(out, "indices"), indices, count);
    ck_assert_uint_eq(tsr_sampler_length(sampler), count);
    free(indices);
}

START_TEST(distributed_equals_torch)
{
    json_t *document = golden_load("torch_distributed_sampler"), *one;
    size_t i;
    int refused = 0;
    json_array_foreach(golden_list(document, "cases"), i, one)
    {
        const json_t *in = golden_member(one, "in"), *out = golden_member(one, "out");
        bool shuffle = json_is_true(golden_member(in, "shuffle"));
        bool drop_last = json_is_true(golden_member(in, "drop_last"));
        tsr_sampler_distributed_params params = {
            .struct_size = sizeof params,
            .n = (uint64_t)golden_integer(in, "n"),
            .ranks = golden_integer(in, "num_replicas"),
            .rank = golden_integer(in, "rank"),
            .order = shuffle ? TSR_ORDER_TORCH : TSR_ORDER_NONE,
            .tail = drop_last ? TSR_TAIL_DROP : TSR_TAIL_PAD,
        };
        tsr_sampler *sampler = NULL;
        tsr_torch_options torch = TSR_INIT(tsr_torch_options);
        wide_seed(in, &params.seed, &torch.seed_high);
        params.torch = &torch;
        tsr_status status = tsr_sampler_create_distributed(&params, &sampler);
        if (is_error(out) && strcmp(golden_text(out, "error"), "ValueError") == 0) {
            ck_assert_int_eq(status, TSR_ERR_INVALID);
            refused++;
            continue;
        }
        ck_assert_ok(status);
        refused += is_error(out);
        check_distributed(golden_text(one, "id"), sampler, (int64_t)golden_u64(in, "epoch"), out);
        if (!is_error(out))
            ck_assert_int_eq((json_int_t)tsr_sampler_length(sampler),
                             golden_integer(out, "num_samples"));
        tsr_sampler_destroy(&sampler);
    }
    ck_assert_uint_eq(i, 153);
    ck_assert_int_eq(refused, 5);
    json_decref(document);
}
END_TEST

START_TEST(distributed_equals_dotnet)
{
    json_t *document = golden_load("dotnet_distributed_sampler"), *one;
    size_t i;
    json_array_foreach(golden_list(document, "cases"), i, one)
    {
        const json_t *in = golden_member(one, "in"), *out = golden_member(one, "out");
        bool drop_last = json_is_true(golden_member(in, "drop_last"));
        tsr_sampler *sampler = NULL;
        ck_assert_ok(tsr_sampler_create_distributed(
            tsr_sampler_distributed_params(.n = (uint64_t)golden_integer(in, "n"),
                                           .ranks = golden_integer(in, "num_replicas"),
                                           .rank = golden_integer(in, "rank"), .seed = seed_of(in),
                                           .order = json_is_true(golden_member(in, "shuffle"))
                                                        ? TSR_ORDER_DOTNET
                                                        : TSR_ORDER_NONE,
                                           .tail = drop_last ? TSR_TAIL_DROP : TSR_TAIL_UNEVEN),
            &sampler));
        check_distributed(golden_text(one, "id"), sampler, (int64_t)golden_u64(in, "epoch"), out);
        tsr_sampler_destroy(&sampler);
    }
    ck_assert_uint_eq(i, 134);
    json_decref(document);
}
END_TEST

static tsr_status create_base(const json_t *in, tsr_sampler **out)
{
    const char *kind = golden_text(in, "kind");
    if (strcmp(kind, "sequential") == 0)
        return tsr_sampler_create_sequential((uint64_t)golden_integer(in, "n"), out);
    if (strcmp(kind, "weighted") == 0) {
        uint64_t count;
        double *weights = weights_of(in, &count);
        tsr_status status = tsr_sampler_create_weighted(
            tsr_sampler_weighted_params(.weights = weights, .count = count,
                                        .num_samples = golden_integer(in, "num_samples"),
                                        .order = TSR_ORDER_TORCH, .seed = seed_of(in),
                                        .replacement = true),
            out);
        free(weights);
        return status;
    }
    if (strcmp(kind, "distributed") == 0)
        return tsr_sampler_create_distributed(
            tsr_sampler_distributed_params(.n = (uint64_t)golden_integer(in, "n"),
                                           .ranks = golden_integer(in, "num_replicas"),
                                           .rank = golden_integer(in, "rank"),
                                           .order = TSR_ORDER_TORCH,
                                           .tail = json_is_true(golden_member(in, "drop_last"))
                                                       ? TSR_TAIL_DROP
                                                       : TSR_TAIL_PAD,
                                           .seed = seed_of(in)),
            out);
    return tsr_sampler_create_random(
        tsr_sampler_random_params(
                .n = (uint64_t)golden_integer(in, "n"), .order = TSR_ORDER_TORCH,
                .replacement = strcmp(kind, "random_replacement") == 0,
                .num_samples = json_integer_value(json_object_get(in, "num_samples")),
                .seed = seed_of(in),
                .torch = tsr_torch_options(.data_loader = strstr(kind, "dataloader") != NULL,
                                           .global_generator = strstr(kind, "global") != NULL)),
        out);
}

START_TEST(batches_equal_torch)
{
    json_t *document = golden_load("torch_batch_sampler"), *one;
    size_t i;
    int errors = 0;
    json_array_foreach(golden_list(document, "cases"), i, one)
    {
        const char *id = golden_text(one, "id");
        const json_t *in = golden_member(one, "in"), *out = golden_member(one, "out");
        const json_t *base_in = golden_member(in, "base");
        tsr_sampler *base = NULL, *sampler = NULL;
        ck_assert_ok(create_base(base_in, &base));
        tsr_status status = tsr_sampler_create_batch(
            tsr_sampler_batch_params(.base = base, .batch_size = golden_integer(in, "batch_size"),
                                     .drop_last = json_is_true(golden_member(in, "drop_last"))),
            &sampler);
        if (is_error(out)) {
            ck_assert_int_eq(status, TSR_ERR_INVALID);
            errors++;
        } else {
            ck_assert_ok(status);
            int64_t first = json_object_get(base_in, "epoch") != NULL
                                ? (int64_t)golden_u64(base_in, "epoch")
                                : 0;
            if (first == 0)
                check_epochs(id, sampler, out);
            size_t e;
            json_t *epoch;
            json_array_foreach(golden_list(out, "epochs"), e, epoch)
            {
                ck_assert_ok(tsr_sampler_set_epoch(sampler, first + (int64_t)e));
                check_batches(id, sampler, epoch);
            }
        }
        tsr_sampler_destroy(&sampler);
        tsr_sampler_destroy(&base);
    }
    ck_assert_uint_eq(i, 79);
    ck_assert_int_eq(errors, 2);
    json_decref(document);
}
END_TEST

/* With 214,748,364 items or more, PyTorch 2.6 draws 64 bits for each item, and PyTorch 1.13 still
 * draws 32. The test takes 2.6 GB. */
START_TEST(hundreds_of_millions_equal_torch)
{
    SKIP_UNLESS_HUGE("2.6 GB and minutes");
    json_t *document = golden_load("torch_randperm"), *one;
    size_t i;
    json_array_foreach(golden_list(document, "cases"), i, one)
    {
        const char *id = golden_text(one, "id");
        const json_t *in = golden_member(one, "in");
        uint64_t n = (uint64_t)golden_integer(in, "n"), got;
        if (!json_is_true(json_object_get(in, "huge")))
            continue;
        int64_t *indices = malloc(n * sizeof *indices);
        ck_assert(indices != NULL);
        for (int older = 0; older < 2; older++) {
            const json_t *out = golden_member(one, older != 0 ? "out_torch_1_13_1" : "out");
            tsr_sampler *sampler = NULL;
            ck_assert_ok(tsr_sampler_create_distributed(
                tsr_sampler_distributed_params(
                        .n = n, .ranks = 1, .order = TSR_ORDER_TORCH, .seed = seed_of(in),
                        .torch = tsr_torch_options(.version = older != 0 ? TSR_TORCH_1_13
                                                                         : TSR_TORCH_DEFAULT)),
                &sampler));
            ck_assert_ok(tsr_sampler_fill(sampler, n, indices, NULL, &got));
            golden_compare(id, golden_member(out, "indices"), indices, got);
            tsr_sampler_destroy(&sampler);
        }
        free(indices);
    }
    json_decref(document);
}
END_TEST

TESTS(golden)
{
    tcase_add_test(tests, random_equals_torch);
    tcase_add_test(tests, subset_equals_torch);
    tcase_add_test(tests, weighted_equals_torch);
    tcase_add_test(tests, distributed_equals_torch);
    tcase_add_test(tests, distributed_equals_dotnet);
    tcase_add_test(tests, batches_equal_torch);
}

TESTS(golden_huge)
{
    tcase_set_timeout(tests, 3600);
    tcase_add_test(tests, hundreds_of_millions_equal_torch);
}
