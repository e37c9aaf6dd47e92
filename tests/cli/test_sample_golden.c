/* Compares tessera sample with recorded output of PyTorch and of a C# sampler, case by case. */
#include <stdio.h>

#include "cli/sample_run.h"
#include "cli/tool.h"
#include "support/golden.h"

static char command[512];

/* Begins the text of the command with "sample KIND"; add() appends options. */
static void start(const char *kind)
{
    snprintf(command, sizeof command, "sample %s", kind);
}

static void add(const char *name, const char *value)
{
    size_t used = strlen(command);
    int length = snprintf(command + used, sizeof command - used, " --%s%s%s", name,
                          value != NULL ? " " : "", value != NULL ? value : "");
    ck_assert_uint_lt(used + (size_t)length, sizeof command);
}

static void add_integer(const char *name, json_int_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, value);
    add(name, text);
}

static void add_flag(const char *name, bool given)
{
    if (given)
        add(name, NULL);
}

static bool is_true(const json_t *in, const char *name)
{
    return json_is_true(golden_member(in, name));
}

/* Checks the epochs of a case, which are printed one after another. */
static void check_epochs(const char *id, const json_t *out)
{
    uint64_t count, done = 0;
    size_t e;
    json_t *epoch;
    const json_t *epochs = golden_list(out, "epochs");
    add_integer("epochs", (json_int_t)json_array_size(epochs));
    const int64_t *values = sample_run(command, &count);
    json_array_foreach(epochs, e, epoch)
    {
        uint64_t here = (uint64_t)golden_integer(epoch, "count");
        if (here > count - done)
            ck_abort_msg("%s: only %" PRIu64 " values", id, count);
        golden_compare(id, epoch, values + done, here);
        done += here;
    }
    ck_assert_uint_eq(done, count);
}

static bool is_error(const json_t *out)
{
    return json_object_get(out, "error") != NULL;
}

static void check_case(const char *id, const json_t *out)
{
    if (is_error(out))
        sample_refuses(command);
    else
        check_epochs(id, out);
}

START_TEST(random_as_torch)
{
    json_t *document = golden_load("torch_random_sampler"), *one;
    size_t i;
    int errors = 0;
    json_array_foreach(golden_list(document, "cases"), i, one)
    {
        const json_t *in = golden_member(one, "in"), *out = golden_member(one, "out");
        const json_t *samples = golden_member(in, "num_samples");
        start("random --order torch");
        add_integer("n", golden_integer(in, "n"));
        add("seed", golden_text(in, "seed"));
        add_flag("replacement", is_true(in, "replacement"));
        if (!json_is_null(samples))
            add_integer("num-samples", json_integer_value(samples));
        add_flag("global-generator", strcmp(golden_text(in, "via"), "global") == 0);
        check_case(golden_text(one, "id"), out);
        errors += is_error(out);
    }
    ck_assert_uint_eq(i, 67);
    ck_assert_int_eq(errors, 5);
    json_decref(document);
}
END_TEST

START_TEST(subset_as_torch)
{
    json_t *document = golden_load("torch_subset_random"), *one;
    size_t i;
    json_array_foreach(golden_list(document, "cases"), i, one)
    {
        const json_t *in = golden_member(one, "in"), *list = json_object_get(in, "indices");
        const json_t *formula = json_object_get(in, "indices_formula");
        uint64_t count =
            list != NULL ? json_array_size(list) : (uint64_t)golden_integer(formula, "count");
        int64_t *indices = calloc(count + 1, sizeof *indices);
        for (uint64_t j = 0; j < count; j++)
            indices[j] = list != NULL ? json_integer_value(json_array_get(list, j))
                                      : golden_integer(formula, "start") +
                                            golden_integer(formula, "step") * (int64_t)j;
        sample_write_integers("indices.txt", indices, count);
        free(indices);
        start("subset --order torch --indices indices.txt");
        add("seed", golden_text(in, "seed"));
        add_flag("global-generator", strcmp(golden_text(in, "via"), "global") == 0);
        check_case(golden_text(one, "id"), golden_member(one, "out"));
    }
    ck_assert_uint_eq(i, 16);
    json_decref(document);
}
END_TEST

static void write_weights(const json_t *in)
{
    const json_t *list = json_object_get(in, "weights");
    uint64_t count = list != NULL
                         ? json_array_size(list)
                         : (uint64_t)golden_integer(golden_member(in, "weights_formula"), "n");
    double *weights = calloc(count + 1, sizeof *weights);
    for (uint64_t i = 0; i < count; i++)
        weights[i] = list != NULL ? json_number_value(json_array_get(list, i))
                                  : (double)((uint32_t)(i * 2654435761u) >> 12) + 1;
    sample_write_reals("weights.txt", weights, count);
    free(weights);
}

START_TEST(weighted_as_torch)
{
    json_t *document = golden_load("torch_weighted_random"), *one;
    size_t i;
    int older_differ = 0;
    json_array_foreach(golden_list(document, "cases"), i, one)
    {
        const json_t *in = golden_member(one, "in");
        const json_t *older = json_object_get(one, "out_torch_1_13_1");
        write_weights(in);
        for (int version = 0; version < (older != NULL ? 2 : 1); version++) {
            start("weighted --order torch --weights weights.txt");
            add("seed", golden_text(in, "seed"));
            add_integer("num-samples", golden_integer(in, "num_samples"));
            add_flag("no-replacement", !is_true(in, "replacement"));
            add_flag("float32", strcmp(golden_text(in, "api"), "multinomial_f32") == 0);
            if (version == 1)
                add("torch-version", "1.13");
            check_case(golden_text(one, "id"), version == 1 ? older : golden_member(one, "out"));
        }
        older_differ += older != NULL;
    }
    ck_assert_uint_eq(i, 59);
    ck_assert_int_eq(older_differ, 7);
    json_decref(document);
}
END_TEST

static void add_share(const json_t *in, const char *order, const char *tail)
{
    add_integer("n", golden_integer(in, "n"));
    add_integer("ranks", golden_integer(in, "num_replicas"));
    add_integer("rank", golden_integer(in, "rank"));
    add("order", json_is_true(json_object_get(in, "shuffle")) ? order : "none");
    add("seed", golden_text(in, "seed"));
    add("epoch", golden_text(in, "epoch"));
    add("tail", is_true(in, "drop_last") ? "drop" : tail);
}

/* Starts the tool for each fourth case. The library's tests compare all of them. */
static void check_shares(const char *file, const char *order, const char *tail, size_t cases)
{
    json_t *document = golden_load(file), *one;
    size_t i;
    json_array_foreach(golden_list(document, "cases"), i, one)
    {
        const json_t *out = golden_member(one, "out");
        uint64_t count;
        if (i % 4 != 1)
            continue;
        start("distributed");
        add_share(golden_member(one, "in"), order, tail);
        if (is_error(out)) {
            sample_refuses(command);
            continue;
        }
        const int64_t *values = sample_run(command, &count);
        golden_compare(golden_text(one, "id"), golden_member(out, "indices"), values, count);
    }
    ck_assert_uint_eq(i, cases);
    json_decref(document);
}

START_TEST(distributed_as_torch)
{
    check_shares("torch_distributed_sampler", "torch", "pad", 153);
}
END_TEST

START_TEST(distributed_as_the_document)
{
    check_shares("dotnet_distributed_sampler", "dotnet", "uneven", 134);
}
END_TEST

/* Adds the options of the kind that is divided into batches. */
static void add_base(const json_t *in)
{
    const char *kind = golden_text(in, "kind");
    if (strcmp(kind, "sequential") == 0) {
        add_integer("n", golden_integer(in, "n"));
        return;
    }
    if (strcmp(kind, "distributed") == 0) {
        add_share(in, "torch", "pad");
        return;
    }
    add("order", "torch");
    add("seed", golden_text(in, "seed"));
    if (json_object_get(in, "num_samples") != NULL)
        add_integer("num-samples", golden_integer(in, "num_samples"));
    if (strcmp(kind, "weighted") == 0) {
        write_weights(in);
        add("weights", "weights.txt");
        return;
    }
    add_integer("n", golden_integer(in, "n"));
    add_flag("replacement", strcmp(kind, "random_replacement") == 0);
    add_flag("data-loader", strstr(kind, "dataloader") != NULL);
    add_flag("global-generator", strstr(kind, "global") != NULL);
}

/* Checks the batches of one epoch. The first of them is batch `first` of the printed list. */
static void check_batches(const char *id, const json_t *epoch, const json_t *batches, size_t first)
{
    const json_t *sizes = golden_member(epoch, "sizes"), *flat = golden_member(epoch, "flat");
    const json_t *listed = json_object_get(epoch, "batches");
    size_t count = (size_t)golden_integer(epoch, "num_batches"), i, j;
    int64_t *all = calloc((size_t)golden_integer(flat, "count") + 1, sizeof *all);
    uint64_t total = 0;
    json_t *value;
    for (i = 0; i < count; i++) {
        const json_t *batch = json_array_get(batches, first + i);
        if (i < json_array_size(listed) && !json_equal(batch, json_array_get(listed, i)))
            ck_abort_msg("%s: batch %zu differs", id, i);
        size_t size = json_array_size(batch);
        if (i == 0 || i + 1 == count)
            ck_assert_int_eq((json_int_t)size, json_integer_value(json_array_get(sizes, i > 0)));
        if (total + size > (uint64_t)golden_integer(flat, "count"))
            ck_abort_msg("%s: too many indices", id);
        json_array_foreach(batch, j, value) all[total++] = json_integer_value(value);
    }
    ck_assert_uint_eq(total, (uint64_t)golden_integer(flat, "count"));
    if (golden_hash(all, total) != golden_hex(golden_member(flat, "fnv1a64")))
        ck_abort_msg("%s: the hash of %" PRIu64 " indices differs", id, total);
    free(all);
}

START_TEST(batches_as_torch)
{
    json_t *document = golden_load("torch_batch_sampler"), *one, *epoch;
    size_t i, e;
    int errors = 0;
    json_array_foreach(golden_list(document, "cases"), i, one)
    {
        const char *id = golden_text(one, "id");
        const json_t *in = golden_member(one, "in"), *out = golden_member(one, "out");
        start("batch");
        add_integer("batch", golden_integer(in, "batch_size"));
        add_flag("drop-last", is_true(in, "drop_last"));
        add_base(golden_member(in, "base"));
        if (is_error(out)) {
            sample_refuses(command);
            errors++;
            continue;
        }
        const json_t *epochs = golden_list(out, "epochs");
        add_integer("epochs", (json_int_t)json_array_size(epochs));
        add("format", "json");
        json_t *printed = tool_json(command, "tessera.sample");
        const json_t *batches = tool_member(printed, "batches");
        size_t first = 0;
        json_array_foreach(epochs, e, epoch)
        {
            check_batches(id, epoch, batches, first);
            first += (size_t)golden_integer(epoch, "num_batches");
        }
        ck_assert_uint_eq(first, json_array_size(batches));
        ck_assert_int_eq((int)tool_number(printed, "length"), (int)golden_integer(out, "len"));
        json_decref(printed);
    }
    ck_assert_uint_eq(i, 79);
    ck_assert_int_eq(errors, 2);
    json_decref(document);
}
END_TEST

TESTS(sample_golden)
{
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, sample_enter_folder, sample_leave_folder);
    tcase_add_test(tests, random_as_torch);
    tcase_add_test(tests, subset_as_torch);
    tcase_add_test(tests, weighted_as_torch);
    tcase_add_test(tests, distributed_as_torch);
    tcase_add_test(tests, distributed_as_the_document);
    tcase_add_test(tests, batches_as_torch);
}
