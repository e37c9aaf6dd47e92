/* Documents that describe and measure a cluster. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "planner/cluster.h"
#include "shard/files.h"
#include "support/check_main.h"

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

#define RANK "{\"gflops\": 10, \"memory_gbytes_per_second\": 20"
#define LINK "{\"latency_us\": 100, \"gbytes_per_second\": 0.1}"
#define HOST(name, more) "{\"name\": \"" name "\", \"ranks\": [" RANK more "}]}"
#define TWO "{\"hosts\": [" HOST("a", "") "," HOST("b", "") "]"

static folder in;
static tsr_cluster *cluster;

static void create(void)
{
    in = folder_create();
    ck_assert_int_eq(chdir(in.path), 0);
}

static void destroy(void)
{
    ck_assert_int_eq(chdir("/"), 0);
    folder_destroy(&in);
}

/* Reads a description of a cluster and, unless it is NULL, the output of `bench link`. */
static tsr_status read_texts(const char *hosts, const char *measured)
{
    char path[160];
    folder_write(&in, "hosts.json", hosts, strlen(hosts), path);
    if (measured)
        folder_write(&in, "links.json", measured, strlen(measured), path);
    return tsr_cluster_create(
        tsr_cluster_params(.description = "hosts.json", .links = measured ? "links.json" : NULL),
        &cluster);
}

START_TEST(reads_a_cluster)
{
    const tsr_status read = read_texts(
        "{\"hosts\": [{\"name\": \"a\", \"processors\": 2, \"turn_us\": 5, \"link\": "
        "{\"latency_us\": 1, \"gbytes_per_second\": 2},"
        "\"ranks\": [" RANK ", \"count\": 2, \"memory\": \"8GiB\"}, " RANK
        ", \"layer_us\": 50, \"collective_us\": 7, \"memory\": 1000}]}," HOST("b", "") "," HOST(
            "c", "") "],"
                     "\"link\": " LINK
                     ", \"links\": [{\"hosts\": [\"c\", \"a\"], \"latency_us\": 0, "
                     "\"gbytes_per_second\": 5}]}",
        NULL);
    ck_assert_ok(read);
    ck_assert_int_eq(cluster->hosts, 3);
    ck_assert_int_eq(cluster->ranks, 5);
    ck_assert_str_eq(cluster->names[2], "c");
    ck_assert_double_eq(cluster->processors[0], 2);
    ck_assert_double_eq_tol(cluster->asleep_seconds[0], 5e-6, 1e-12);
    ck_assert_double_eq_tol(cluster->awake_seconds[0], 1.5e-6, 1e-12);
    ck_assert_double_eq_tol(cluster->asleep_seconds[1], 15e-6, 1e-12);
    ck_assert_double_eq(cluster->processors[1], 0);
    ck_assert_int_eq(tsr__host_ranks(cluster, 0), 3);
    ck_assert_uint_eq(cluster->rank[1].memory, UINT64_C(8) << 30);
    ck_assert_uint_eq(cluster->rank[2].memory, 1000);
    ck_assert_uint_eq(cluster->rank[4].memory, 0);
    ck_assert_double_eq_tol(cluster->rank[2].layer_seconds, 50e-6, 1e-12);
    ck_assert_double_eq_tol(cluster->rank[2].collective_seconds, 7e-6, 1e-12);
    ck_assert_double_eq(cluster->rank[4].collective_seconds, 0);
    ck_assert_double_eq(cluster->rank[4].flops, 1e10);
    ck_assert_double_eq(cluster->rank[4].bandwidth, 2e10);
    ck_assert_double_eq_tol(tsr__link_seconds(&cluster->links[0], 2e9), 1 + 1e-6, 1e-9);
    ck_assert_double_eq_tol(tsr__link_seconds(&cluster->links[1], 0), 100e-6, 1e-12);
    ck_assert_double_eq_tol(tsr__link_bandwidth(&cluster->links[2]), 5e9, 1);
    ck_assert_double_eq_tol(tsr__link_bandwidth(&cluster->links[6]), 5e9, 1);
    tsr_cluster_destroy(&cluster);
}
END_TEST

#define RESULT_OF(name, rank, peer, bytes, ns)                                                     \
    "{\"benchmark\": \"" name "\", \"case\": {\"rank\": " rank ", \"peer\": " peer                 \
    ", \"bytes\": " bytes "}, \"host_ns\": {\"median\": " ns "}}"
#define RESULT(rank, peer, hosts, bytes, ns)                                                       \
    "{\"benchmark\": \"link\", \"case\": {\"rank\": " rank ", \"peer\": " peer                     \
    ", \"hosts\": \"" hosts "\", \"bytes\": " bytes "}, \"host_ns\": {\"median\": " ns "}}"

/* Reads a description of a cluster and an output of `bench link` with these results. */
static tsr_status read_results(const char *hosts, size_t count, const char *const *results)
{
    char measured[8192] = "{\"results\": [";
    for (size_t i = 0; i < count; i++) {
        const size_t used = strlen(measured);
        const int length =
            snprintf(measured + used, sizeof measured - used, "%s%s", i > 0 ? "," : "", results[i]);
        ck_assert(length > 0 && (size_t)length < sizeof measured - used - 2);
    }
    strcat(measured, "]}");
    return read_texts(hosts, measured);
}

START_TEST(reads_measured_links)
{
    static const char *const results[] = {"{\"benchmark\": \"memcpy\"}",
                                          RESULT("0", "1", "same", "8", "500.0"),
                                          RESULT("0", "1", "same", "1000", "1000.0"),
                                          RESULT("0", "2", "two", "1000", "300000.0"),
                                          RESULT("0", "2", "two", "8", "100000.0"),
                                          RESULT("1", "2", "two", "8", "120000.0"),
                                          RESULT("1", "2", "two", "1000", "200000.0")};
    const tsr_status read = read_results("{\"hosts\": [{\"name\": \"a\", \"ranks\": [" RANK
                                         ", \"count\": 2}]}," HOST("b", "") "]}",
                                         sizeof results / sizeof *results, results);
    ck_assert_ok(read);
    ck_assert_double_eq_tol(tsr__link_seconds(&cluster->links[0], 8), 500e-9, 1e-12);
    ck_assert_double_eq_tol(tsr__link_seconds(&cluster->links[1], 8), 110e-6, 1e-12);
    ck_assert_double_eq_tol(tsr__link_seconds(&cluster->links[2], 1000), 250e-6, 1e-12);
    tsr_cluster_destroy(&cluster);
}
END_TEST

#define HOST_RESULT(name, host, ranks, more, ns)                                                   \
    "{\"benchmark\": \"" name "\", \"case\": {\"host\": " host ", \"ranks\": " ranks               \
    ", \"processors\": 1, " more "}, \"host_ns\": {\"median\": " ns "}}"

/* Measured values of a host must be used where the description has none. */
START_TEST(reads_measured_hosts)
{
    static const char *const results[] = {
        RESULT("0", "1", "same", "8", "500.0"),
        RESULT("0", "1", "same", "1000", "900.0"),
        RESULT("2", "3", "same", "8", "500.0"),
        RESULT("2", "3", "same", "1000", "900.0"),
        RESULT("0", "2", "two", "8", "1e5"),
        RESULT("0", "2", "two", "1000", "2e5"),
        RESULT_OF("message", "0", "2", "8", "2e4"),
        RESULT_OF("message", "0", "2", "1008", "3e4"),
        HOST_RESULT("turn", "0", "2", "\"others\": \"awake\"", "700"),
        HOST_RESULT("turn", "0", "2", "\"others\": \"asleep\"", "9000"),
        HOST_RESULT("turn", "1", "2", "\"others\": \"asleep\"", "9000"),
        HOST_RESULT("memory", "0", "2", "\"bytes\": 8", "2000"),
        HOST_RESULT("memory", "0", "2", "\"bytes\": 1008", "6000"),
    };
    const tsr_status read = read_results(
        "{\"hosts\": [{\"name\": \"a\", \"ranks\": [" RANK
        ", \"count\": 2}]}, {\"name\": \"b\", \"processors\": 3, \"turn_us\": 5, \"ranks\": [" RANK
        ", \"count\": 2}]}]}",
        sizeof results / sizeof *results, results);
    ck_assert_ok(read);
    ck_assert_double_eq(cluster->processors[0], 1);
    ck_assert_double_eq_tol(cluster->awake_seconds[0], 0.7e-6, 1e-12);
    ck_assert_double_eq_tol(cluster->asleep_seconds[0], 9e-6, 1e-12);
    ck_assert_double_eq(cluster->processors[1], 3);
    ck_assert_double_eq_tol(cluster->asleep_seconds[1], 5e-6, 1e-12);
    ck_assert_int_eq(cluster->memory[0].ranks, 2);
    ck_assert_double_eq_tol(cluster->memory[0].latency, 2e-6, 1e-12);
    /* 1008 bytes take 6 µs in the memory of the first host, 2 of which are the latency. The other 4
     * are the work of its two ranks, which share a processor. The second host was not measured. */
    ck_assert_double_eq_tol(tsr__link_seconds(&cluster->memory[0].work, 1008), 2e-6, 1e-12);
    ck_assert_int_eq(cluster->memory[1].work.count, 0);
    ck_assert_double_eq_tol(tsr__link_seconds(&cluster->message_work[1], 508), 25e-6, 1e-12);
    tsr_cluster_destroy(&cluster);
}
END_TEST

/* Reads a description of a cluster without rates, and these rates. */
static tsr_status read_rates(const char *rates)
{
    static const char hosts[] = "{\"hosts\": [{\"name\": \"a\", \"ranks\": [{\"memory\": 1000}]}]}";
    char path[160];
    folder_write(&in, "hosts.json", hosts, strlen(hosts), path);
    folder_write(&in, "rates.json", rates, strlen(rates), path);
    return tsr_cluster_create(
        tsr_cluster_params(.description = "hosts.json", .rates = "rates.json"), &cluster);
}

#define RATES(ranks)                                                                               \
    "{\"schema\": \"tessera.bench.rates\", \"model\": {\"bytes_per_element\": 2}, \"ranks\": "     \
    "[" ranks "]}"
#define PASS(rows, elements)                                                                       \
    "{\"rows\": " rows ", \"pass_us\": 30, \"layer_us\": 20, \"million_elements_us\": " elements   \
    ", \"head_us\": 15, \"million_head_elements_us\": 40}"

START_TEST(reads_measured_rates)
{
    static const struct {
        const char *rates, *sentence;
    } wrong[] = {
        {"[", "rates.json: offset 1: "},
        {"{}", "rates.json: is not the output of tessera bench rates --json"},
        {RATES(""), "rates.json: has 0 ranks, but the cluster has 1"},
        {RATES("{}"), "rates.json: rank 0 has no passes"},
        {RATES("{\"host_collective_us\": -1, \"passes\": [" PASS("2", "1") "]}"),
         "rates.json: \"host_collective_us\" of rank 0 is -1; it must be at least 0 and at most "
         "1e+07"},
        {RATES("{\"passes\": [" PASS("2", "1") "," PASS("2", "1") "]}"),
         "rates.json: passes[1] of rank 0 has 2 rows, after 2; they must ascend"},
        {RATES("{\"passes\": [" PASS("2", "0") "]}"),
         "rates.json: \"million_elements_us\" of passes[0] of rank 0 is 0; it must be more than 0 "
         "and "
         "at most 1e+12"},
    };
    ck_assert_ok(read_rates(RATES(
        "{\"collective_us\": 7, \"passes\": [" PASS("1", "100") "," PASS("64", "3200") "]}")));
    const tsr__cluster_rank *rank = &cluster->rank[0];
    ck_assert_int_eq(rank->passes, 2);
    ck_assert_double_eq_tol(rank->pass[1].pass, 30e-6, 1e-12);
    ck_assert_double_eq_tol(rank->pass[1].layer, 20e-6, 1e-12);
    ck_assert_double_eq_tol(rank->pass[1].element, 3.2e-9, 1e-15);
    ck_assert_double_eq_tol(rank->pass[1].head, 15e-6, 1e-12);
    ck_assert_double_eq_tol(rank->pass[1].head_element, 40e-12, 1e-18);
    ck_assert_double_eq_tol(rank->collective_seconds, 7e-6, 1e-12);
    ck_assert_double_eq_tol(rank->host_collective_seconds, 7e-6, 1e-12);
    ck_assert_double_eq_tol(rank->bandwidth, 2e10, 1);
    ck_assert_double_eq_tol(rank->flops, 4e10, 1);
    tsr_cluster_destroy(&cluster);
    ck_assert_ok(read_rates(RATES("{\"collective_us\": 7, \"host_collective_us\": 3, \"passes\": "
                                  "[" PASS("1", "100") "]}")));
    ck_assert_double_eq_tol(cluster->rank[0].host_collective_seconds, 3e-6, 1e-12);
    tsr_cluster_destroy(&cluster);
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        ck_assert_int_eq(read_rates(wrong[i].rates), TSR_ERR_INVALID);
        const char *error = tsr_last_error();
        ck_assert_msg(strncmp(error, wrong[i].sentence, strlen(wrong[i].sentence)) == 0,
                      "'%s' instead of '%s'", error, wrong[i].sentence);
        ck_assert_ptr_null(cluster);
    }
}
END_TEST

static const struct {
    const char *hosts, *links, *sentence;
} mistakes[] = {
    {"[", NULL, "hosts.json: offset 1: "},
    {"[]", NULL, "hosts.json: the document is not an object"},
    {"{}", NULL, "hosts.json: \"hosts\" must be a list of at least one host"},
    {"{\"hosts\": []}", NULL, "hosts.json: \"hosts\" must be a list of at least one host"},
    {"{\"hosts\": [], \"hosts\": []}", NULL, "hosts.json: the document has \"hosts\" twice"},
    {"{\"host\": []}", NULL, "hosts.json: the document has the unknown member \"host\""},
    {"{\"hosts\": [7]}", NULL, "hosts.json: hosts[0] is not an object"},
    {"{\"hosts\": [{\"name\": \"\"}]}", NULL,
     "hosts.json: \"name\" of hosts[0] must be a text of 1 to 63 bytes"},
    {"{\"hosts\": [{\"name\": \"a\"}]}", NULL, "hosts.json: host \"a\" has no ranks"},
    {"{\"hosts\": [{\"name\": \"a\", \"processors\": -2}]}", NULL,
     "hosts.json: \"processors\" of hosts[0] is -2; it must be at least 0 and at most 65536"},
    {"{\"hosts\": [{\"name\": \"a\", \"turn_us\": \"8\"}]}", NULL,
     "hosts.json: \"turn_us\" of hosts[0] is not a number"},
    {"{\"hosts\": [" HOST("a", "") "," HOST("a", "") "]}", NULL,
     "hosts.json: two hosts have the name \"a\""},
    {"{\"hosts\": [" HOST("a", ", \"gflop\": 1") "]}", NULL,
     "hosts.json: ranks[0] of host \"a\" has the unknown member \"gflop\""},
    {"{\"hosts\": [{\"name\": \"a\", \"ranks\": [{\"gflops\": 1}]}]}", NULL,
     "hosts.json: ranks[0] of host \"a\" has no \"memory_gbytes_per_second\""},
    {"{\"hosts\": [{\"name\": \"a\", \"ranks\": [{\"gflops\": -3}]}]}", NULL,
     "hosts.json: \"gflops\" of ranks[0] of host \"a\" is -3; it must be more than 0 and at most "
     "1e+09"},
    {"{\"hosts\": [{\"name\": \"a\", \"ranks\": [{\"gflops\": \"fast\"}]}]}", NULL,
     "hosts.json: \"gflops\" of ranks[0] of host \"a\" is not a number"},
    {"{\"hosts\": [" HOST("a", ", \"layer_us\": 1e9") "]}", NULL,
     "hosts.json: \"layer_us\" of ranks[0] of host \"a\" is 1e+09; it must be at least 0 and at "
     "most 1e+07"},
    {"{\"hosts\": [" HOST("a", ", \"memory\": \"8 apples\"") "]}", NULL,
     "hosts.json: \"memory\" of ranks[0] of host \"a\" must be bytes, up to 2^53, such as "
     "8589934592 or \"8GiB\""},
    {"{\"hosts\": [" HOST("a", ", \"memory\": -1") "]}", NULL,
     "hosts.json: \"memory\" of ranks[0] of host \"a\" must be bytes"},
    {"{\"hosts\": [" HOST("a", ", \"count\": 1.5") "]}", NULL,
     "hosts.json: \"count\" of ranks[0] of host \"a\" is 1.5; it must be a whole number"},
    {"{\"hosts\": [" HOST("a", ", \"count\": 200") "," HOST("b", ", \"count\": 57") "]}", NULL,
     "hosts.json: there are more than 256 ranks"},
    {"{\"hosts\": [" HOST("a", ", \"count\": 2") "]}", NULL,
     "hosts.json: host \"a\" has 2 ranks, but no \"link\" between them"},
    {TWO "}", NULL, "hosts.json: there is no link between the hosts \"a\" and \"b\""},
    {TWO ", \"link\": {\"latency_us\": 1}}", NULL,
     "hosts.json: \"link\" has no \"gbytes_per_second\""},
    {TWO ", \"link\": {\"gbytes_per_second\": 1}}", NULL,
     "hosts.json: \"link\" has no \"latency_us\""},
    {TWO ", \"link\": {\"latency_us\": 1, \"gbytes_per_second\": 0}}", NULL,
     "hosts.json: \"gbytes_per_second\" of \"link\" is 0; it must be more than 0 and at most "
     "100000"},
    {TWO ", \"links\": 5}", NULL, "hosts.json: \"links\" is not a list"},
    {TWO ", \"links\": [{\"hosts\": [\"a\"], \"latency_us\": 1, \"gbytes_per_second\": 1}]}", NULL,
     "hosts.json: \"hosts\" of links[0] must be the names of two hosts"},
    {TWO ", \"links\": [{\"hosts\": [\"a\", \"x\"], \"latency_us\": 1, \"gbytes_per_second\": 1}]}",
     NULL, "hosts.json: links[0] names the host \"x\", which does not exist"},
    {TWO ", \"links\": [{\"hosts\": [\"a\", \"a\"], \"latency_us\": 1, \"gbytes_per_second\": 1}]}",
     NULL, "hosts.json: links[0] names the host \"a\" twice"},
    {TWO "}", "{", "links.json: offset 1: "},
    {TWO "}", "{\"results\": []}", "links.json: has no results of tessera bench link"},
    {TWO "}", "{\"results\": [{\"benchmark\": \"link\"}]}",
     "links.json: a result of the benchmark link lacks its ranks, bytes or time"},
    {TWO "}", "{\"results\": [" RESULT("0", "2", "two", "8", "1.0") "]}",
     "links.json: has a link of rank 2, but the cluster has 2 ranks"},
    {TWO "}", "{\"results\": [" RESULT("0", "1", "same", "8", "1.0") "]}",
     "links.json: ranks 0 and 1 are on the same host in the measurement, but not in the cluster"},
    {TWO "}", "{\"results\": [" RESULT("0", "1", "two", "8", "1.0") "]}",
     "links.json: has messages of one size only, 8 bytes; at least two are needed"},
    {TWO "}", "{\"results\": [" RESULT("0", "1", "two", "8", "-1.0") "]}",
     "links.json: a result of the benchmark link lacks its ranks, bytes or time"},
    {TWO "}", "{\"results\": [" HOST_RESULT("turn", "2", "2", "\"others\": \"awake\"", "1") "]}",
     "links.json: has results of host 2, but the cluster has 2 hosts"},
    {TWO "}", "{\"results\": [" HOST_RESULT("turn", "0", "0", "\"others\": \"awake\"", "1") "]}",
     "links.json: a result of the benchmark link lacks the \"ranks\" of its case"},
    {TWO "}", "{\"results\": [" HOST_RESULT("turn", "0", "2", "\"others\": 5", "1") "]}",
     "links.json: a result of the benchmark link has turns without \"others\""},
    {TWO "}", "{\"results\": [" HOST_RESULT("memory", "0", "1", "\"bytes\": 8", "1") "]}",
     "links.json: a result of the benchmark link lacks an all-reduce's ranks, bytes or time"},
    {TWO "}",
     "{\"results\": [" HOST_RESULT("memory", "0", "2", "\"bytes\": 8", "1") "," HOST_RESULT(
         "memory", "0", "2", "\"bytes\": 8", "1") "]}",
     "links.json: has all-reduces of host 0 whose sizes do not ascend"},
};

START_TEST(refuses_descriptions)
{
    ck_assert_int_eq(read_texts(mistakes[_i].hosts, mistakes[_i].links), TSR_ERR_INVALID);
    const char *error = tsr_last_error();
    ck_assert_msg(strncmp(error, mistakes[_i].sentence, strlen(mistakes[_i].sentence)) == 0,
                  "'%s' instead of '%s'", error, mistakes[_i].sentence);
    ck_assert_ptr_null(cluster);
}
END_TEST

START_TEST(refuses_missing_files)
{
    ck_assert_int_eq(
        tsr_cluster_create(tsr_cluster_params(.description = "nothing.json"), &cluster),
        TSR_ERR_NOT_FOUND);
    const char *error = tsr_last_error();
    ck_assert_ptr_nonnull(strstr(error, "nothing.json: "));
    ck_assert_ptr_nonnull(strstr(error, "No such file or directory"));
    tsr_cluster_destroy(&cluster);
}
END_TEST

/* Texts in memory are read like files. Error texts then begin with the kind of document. */
START_TEST(reads_texts_in_memory)
{
    static const char hosts[] = TWO ", \"link\": " LINK "}",
                      links[] = "{\"results\": [" RESULT("0", "1", "two", "8", "1e5") "," RESULT(
                          "0", "1", "two", "1000", "2e5") "]}",
                      rates[] = RATES("{\"passes\": [" PASS("1", "100") "]},{\"passes\": [" PASS(
                          "1", "50") "]}");
    ck_assert_ok(tsr_cluster_create(
        tsr_cluster_params(.description_text = hosts, .links_text = links, .rates_text = rates),
        &cluster));
    ck_assert_double_eq_tol(tsr__link_seconds(&cluster->links[1], 8), 1e-4, 1e-12);
    ck_assert_double_eq_tol(cluster->rank[1].flops, 4e10, 1);
    tsr_cluster_destroy(&cluster);
    ck_assert_error(tsr_cluster_create(tsr_cluster_params(.description_text = "{}"), &cluster),
                    TSR_ERR_INVALID, "description: \"hosts\" must be a list of at least one host");
    ck_assert_error(
        tsr_cluster_create(tsr_cluster_params(.description_text = hosts, .links_text = "[]"),
                           &cluster),
        TSR_ERR_INVALID, "links: has no results of tessera bench link");
    ck_assert_error(
        tsr_cluster_create(tsr_cluster_params(.description_text = hosts, .rates_text = "\xff"),
                           &cluster),
        TSR_ERR_INVALID, "rates: is not UTF-8");
    ck_assert_error(tsr_cluster_create(tsr_cluster_params(.links_text = links), &cluster),
                    TSR_ERR_INVALID, "planner: description is missing");
    ck_assert_error(
        tsr_cluster_create(
            tsr_cluster_params(.description_text = hosts, .description = "hosts.json"), &cluster),
        TSR_ERR_INVALID, "planner: description and description_text are both given");
    ck_assert_error(tsr_cluster_create(NULL, &cluster), TSR_ERR_INVALID, "planner: params is NULL");
    ck_assert_ptr_null(cluster);
}
END_TEST

/* Each allocation of reading all three documents fails once. */
START_TEST(lacks_memory)
{
    static const char hosts[] = TWO ", \"link\": " LINK "}",
                      links[] = "{\"results\": [" RESULT("0", "1", "two", "8", "1e5") "," RESULT(
                          "0", "1", "two", "1000", "2e5") "]}",
                      rates[] = RATES("{\"passes\": [" PASS("1", "100") "]},{\"passes\": [" PASS(
                          "1", "50") "]}");
    tsr_status status = TSR_ERR_NO_MEMORY;
    uint64_t failures = 0;
    char path[160];
    folder_write(&in, "hosts.json", hosts, strlen(hosts), path);
    for (; status != TSR_OK; failures++) {
        tsr__fault_arm(TSR__FAULT_ALLOC, failures, 0);
        status = tsr_cluster_create(tsr_cluster_params(.description = "hosts.json",
                                                       .links_text = links, .rates_text = rates),
                                    &cluster);
        const bool failed = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        ck_assert_int_eq(status, failed ? TSR_ERR_NO_MEMORY : TSR_OK);
        ck_assert(failed == (cluster == NULL));
    }
    tsr_cluster_destroy(&cluster);
    ck_assert_uint_gt(failures, 4);
}
END_TEST

/* A document that nests too deeply, and one with a name that is longer than any name. */
START_TEST(refuses_hostile_documents)
{
    static char deep[200], longest[6000];
    memset(deep, '[', sizeof deep - 1);
    ck_assert_error(tsr_cluster_create(tsr_cluster_params(.description_text = deep), &cluster),
                    TSR_ERR_INVALID, "description: offset 32: brackets nested more than 32 deep");
    memset(longest, 'x', sizeof longest - 1);
    longest[0] = '{';
    longest[1] = '"';
    snprintf(longest + sizeof longest - 5, 5, "\":1}");
    ck_assert_error(tsr_cluster_create(tsr_cluster_params(.description_text = longest), &cluster),
                    TSR_ERR_INVALID, "description: offset 1: a string of more than 4096 bytes");
}
END_TEST

TESTS(planner_documents)
{
    tcase_add_checked_fixture(tests, create, destroy);
    tcase_add_test(tests, reads_a_cluster);
    tcase_add_test(tests, reads_measured_links);
    tcase_add_test(tests, reads_measured_hosts);
    tcase_add_test(tests, reads_measured_rates);
    tcase_add_loop_test(tests, refuses_descriptions, 0, (int)COUNT_OF(mistakes));
    tcase_add_test(tests, refuses_missing_files);
    tcase_add_test(tests, reads_texts_in_memory);
    tcase_add_test(tests, lacks_memory);
    tcase_add_test(tests, refuses_hostile_documents);
}
