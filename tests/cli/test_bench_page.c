/* Tests tessera bench report. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/made_run.h"
#include "cli/tool.h"
#include "support/check_main.h"

static char *read_page(const char *path)
{
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    char *text = calloc(1, 1 << 20);
    ck_assert_ptr_nonnull(text);
    ck_assert_uint_gt(fread(text, 1, (1 << 20) - 1, file), 0);
    fclose(file);
    return text;
}

/* Makes a page of two runs, and frees them. */
static char *page_of(json_t *first, json_t *second)
{
    char paths[2][MADE_PATH], output[MADE_PATH + 8], arguments[320];
    made_write(first, paths[0]);
    made_write(second, paths[1]);
    snprintf(output, sizeof output, "%s.html", paths[0]);
    snprintf(arguments, sizeof arguments, "bench report %s %s -o %s", paths[0], paths[1], output);
    tool_result result = tool_run(arguments);
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    ck_assert_str_eq(result.out, "");
    ck_assert_str_eq(result.err, "");
    tool_result_free(&result);
    char *page = read_page(output);
    remove(paths[0]);
    remove(paths[1]);
    remove(output);
    return page;
}

/* Returns a run on a device of this type. The device's copy of 2500 GB/s is a ceiling, and so is
 * the host's memcpy of 40 GB/s. */
static json_t *run_on(const char *type)
{
    json_t *run = made_run(), *copy = json_deep_copy(made_result(run, 3));
    json_object_set_new(json_array_get(json_object_get(run, "devices"), 0), "type",
                        json_string(type));
    json_object_set_new(copy, "benchmark", json_string("device_copy"));
    json_object_set_new(json_object_get(copy, "value"), "unit", json_string("GB/s"));
    json_array_append_new(json_object_get(run, "results"), copy);
    made_set(run, 6, 2500, 2400, 2600);
    return run;
}

/* Adds a result of bench link, at `rate` GB/s. */
static void add_link(json_t *run, int64_t rank, int64_t peer, int bytes, double rate)
{
    json_t *link = json_deep_copy(made_result(run, 1));
    json_object_set_new(link, "benchmark", json_string("link"));
    json_object_set_new(link, "device", json_null());
    json_object_set_new(link, "work", json_real(bytes));
    json_object_set_new(link, "case",
                        json_pack("{s:I, s:I, s:s, s:i}", "rank", (json_int_t)rank, "peer",
                                  (json_int_t)peer, "hosts", "two", "bytes", bytes));
    json_array_append_new(json_object_get(run, "results"), link);
    made_set(run, json_array_size(json_object_get(run, "results")) - 1, rate, rate, rate);
}

/* Results of pairs of ranks are shown as a matrix, in which the slowest pair has the weakest
 * colour. Pairs with invalid rank numbers, or with too many ranks for a matrix, are only in the
 * table. */
START_TEST(pairs_are_a_matrix)
{
    json_t *run = made_run();
    add_link(run, 0, 1, 8, 0.004);
    add_link(run, 0, 2, 8, 0.002);
    add_link(run, 1, 2, 8, 0.001);
    add_link(run, 0, 1, 1 << 20, 5);
    add_link(run, -1, 1, 8, 1);
    add_link(run, 3, 64, 8, 1);
    add_link(run, (int64_t)1 << 40, 1, 8, 1);
    char *page = page_of(run, made_run());
    ck_assert_int_eq(tool_count(page, "<table class=\"pairs\">"), 2);
    ck_assert_int_eq(tool_count(page, "time of a message of 8 B"), 1);
    ck_assert_int_eq(tool_count(page, "GB/s of a message of 1 MiB"), 1);
    ck_assert_int_eq(tool_count(page, "<td class=\"n h8\">2.00 µs"), 2);
    ck_assert_int_eq(tool_count(page, "<td class=\"n h0\">8.00 µs"), 2);
    ck_assert_int_eq(tool_count(page, "<td class=\"n h4\">5.00"), 2);
    free(page);
}
END_TEST

/* For a GPU, the memory ceiling on the page must not be memcpy, which is measured for all-reduces;
 * for a CPU driver, it must not be the copy on the device. */
START_TEST(memory_is_the_devices_own)
{
    static const struct {
        const char *type, *cell, *note;
    } kinds[] = {
        {"discrete", "<td class=\"n\">2500 GB/s</td>", "<li>memory: device_copy, 2500 GB/s</li>"},
        {"cpu", "<td class=\"n\">40.0 GB/s</td>", "<li>memory: memcpy, 40.0 GB/s</li>"}};
    for (int i = 0; i < 2; i++) {
        char *page = page_of(run_on(kinds[i].type), run_on(kinds[i].type));
        const char *glance = strstr(page, "At a glance"), *cell = strstr(glance, kinds[i].cell);
        ck_assert_msg(cell != NULL && cell < strstr(glance, "</table>"), "%s", kinds[i].type);
        ck_assert_int_eq(tool_count(page, kinds[i].note), 2);
        ck_assert_int_eq(tool_count(page, "f32: fma_peak, 200 GFLOP/s</li>"), 2);
        free(page);
    }
    char *page = page_of(made_run(), made_run()); /* a GPU for which only memcpy was measured */
    ck_assert_int_eq(tool_count(page, "<svg class=\"roofline\""), 0);
    free(page);
}
END_TEST

START_TEST(the_page_shows_every_result)
{
    char *page = page_of(run_on("cpu"), run_on("discrete"));
    ck_assert_int_eq(tool_count(page, "<svg class=\"roofline\""), 2);
    ck_assert_int_eq(tool_count(page, "<svg class=\"bars\""), 4); /* all but the ceilings */
    ck_assert_int_eq(tool_count(page, "<tr><td>"), 14);
    ck_assert_ptr_nonnull(strstr(page, "f32 64×65×66"));
    ck_assert_ptr_nonnull(strstr(page, "100 GFLOP/s"));
    ck_assert_ptr_nonnull(strstr(page, "50.0 µs"));
    ck_assert_ptr_nonnull(strstr(page, "150 GFLOP/s, OtherBLAS"));
    ck_assert_ptr_nonnull(strstr(page, "the machine was busy"));
    ck_assert_ptr_nonnull(strstr(page, "f32 4096x4096x4096"));
    ck_assert_ptr_nonnull(strstr(page, "</html>\n"));
    /* The page fetches nothing and runs no script: its only addresses are the names of two
     * formats. */
    ck_assert_int_eq(tool_count(page, "://"), tool_count(page, "xmlns=\"http://www.w3.org/"));
    ck_assert_ptr_null(strstr(page, "<script"));
    ck_assert_ptr_null(strstr(page, "url("));
    free(page);
}
END_TEST

/* If a kernel is faster than the copy, the page uses its speed as the ceiling of a GPU's memory. */
START_TEST(the_faster_of_copy_and_kernel_is_the_memory)
{
    for (int faster = 0; faster < 2; faster++) {
        json_t *run = run_on("discrete"), *stream = json_deep_copy(made_result(run, 6));
        json_object_set_new(stream, "benchmark", json_string("memory_stream"));
        json_array_append_new(json_object_get(run, "results"), stream);
        made_set(run, 7, faster ? 2700 : 2300, 2200, 2800);
        char *page = page_of(run, made_run());
        ck_assert_int_eq(tool_count(page, faster ? "<li>memory: memory_stream, 2700 GB/s</li>"
                                                 : "<li>memory: device_copy, 2500 GB/s</li>"),
                         1);
        free(page);
    }
}
END_TEST

/* Returns a run with an f16 product that memory limits. */
static json_t *run_with_f16(void)
{
    json_t *run = run_on("discrete"), *product = json_deep_copy(made_result(run, 0));
    json_object_set_new(json_object_get(product, "case"), "dtype", json_string("f16"));
    json_object_set_new(
        product, "ceiling",
        json_pack("{s:i, s:s, s:f}", "result", 6, "benchmark", "device_copy", "fraction", 0.5));
    json_array_append_new(json_object_get(run, "results"), product);
    return run;
}

START_TEST(large_rates_are_in_tera)
{
    json_t *run = run_with_f16();
    made_set(run, 3, 32000, 9000, 33000);
    char *page = page_of(run, made_run());
    ck_assert_ptr_nonnull(strstr(page, "fma_peak, 32.0 TFLOP/s"));
    ck_assert_ptr_nonnull(strstr(page, "9000 GFLOP/s – 33.0 TFLOP/s"));
    ck_assert_ptr_nonnull(strstr(page, "100 GFLOP/s"));
    free(page);
}
END_TEST

/* Each dtype has the roof of its own arithmetic, and the axis reaches up to the highest roof. */
START_TEST(each_dtype_has_its_roof)
{
    json_t *run = run_with_f16(), *peak = json_deep_copy(made_result(run, 3));
    json_object_set_new(peak, "benchmark", json_string("coopmat_peak"));
    json_object_set_new(
        peak, "case",
        json_pack("{s:s, s:s, s:i}", "dtype", "f16", "shape", "16x16x16", "chains", 4));
    json_array_append_new(json_object_get(run, "results"), peak);
    made_set(run, 8, 3200, 3100, 3300);
    char *page = page_of(run, run_with_f16());
    ck_assert_int_eq(tool_count(page, "f16: coopmat_peak, 3200 GFLOP/s</li>"), 1);
    ck_assert_int_eq(tool_count(page, "f16: fma_peak, 200 GFLOP/s</li>"), 1);
    ck_assert_int_eq(tool_count(page, "f32: fma_peak, 200 GFLOP/s</li>"), 2);
    /* Counts the roofs in the legends and in the drawings. */
    ck_assert_int_eq(tool_count(page, "<polyline class=\"roof r0\""), 4);
    ck_assert_int_eq(tool_count(page, "<polyline class=\"roof r1\""), 4);
    ck_assert_int_eq(tool_count(page, "<polyline class=\"roof r2\""), 0);
    ck_assert_ptr_nonnull(strstr(page, ">2048</text>"));
    free(page);
}
END_TEST

/* Returns a run with only the last two results, those of the host. */
static json_t *run_on_host(void)
{
    json_t *run = made_run(), *results = json_object_get(run, "results");
    for (int i = 0; i < 4; i++)
        json_array_remove(results, 0);
    json_array_clear(json_object_get(run, "devices"));
    json_array_clear(json_object_get(run, "left_out"));
    return run;
}

/* The page starts with the devices, their memory and driver, the host and the date. */
START_TEST(devices_and_hosts_come_first)
{
    char *page = page_of(made_run(), run_on_host());
    const char *row = strstr(page, "<td>8 GiB</td><td>made 1.0</td><td>Made CPU, 2 CPUs</td>"
                                   "<td class=\"date\">2026-01-02</td></tr>");
    ck_assert_ptr_nonnull(row);
    ck_assert(row < strstr(page, "At a glance"));
    ck_assert_int_eq(
        tool_count(
            page,
            "<td>–</td><td>–</td><td>Made CPU, 2 CPUs</td><td class=\"date\">2026-01-02</td>"),
        1);
    free(page);
    json_t *run = made_run(); /* older files do not have heaps */
    json_object_del(json_array_get(json_object_get(run, "devices"), 0), "heaps");
    page = page_of(run, made_run());
    ck_assert_int_eq(tool_count(page, "<td>–</td><td>made 1.0</td>"), 1);
    free(page);
}
END_TEST

/* Results above their ceiling are marked, with the reason. */
START_TEST(results_above_their_ceiling_are_marked)
{
    json_t *run = run_with_f16();
    json_object_set_new(json_object_get(made_result(run, 0), "ceiling"), "fraction",
                        json_real(1.13));
    json_object_set_new(json_object_get(made_result(run, 7), "ceiling"), "fraction",
                        json_real(1.73));
    char *page = page_of(run, made_run());
    ck_assert_int_eq(tool_count(page, " · 113 %, above</tspan>"), 1);
    ck_assert_int_eq(tool_count(page, "113 % of fma_peak, above</td>"), 1);
    ck_assert_int_eq(tool_count(page, " · 173 %, caches</tspan>"), 1);
    ck_assert_int_eq(tool_count(page, "173 % of device_copy, caches</td>"), 1);
    ck_assert_int_eq(tool_count(page, " · 50 %</tspan>"), 1); /* in the other run */
    free(page);
}
END_TEST

/* Sections without content must have no heading. */
START_TEST(there_are_no_empty_sections)
{
    static const char glance[] = "<h2>At a glance</h2>",
                      roofline[] = "<h2>Rooflines of matrix products</h2>";
    char *page = page_of(run_on_host(), run_on_host());
    ck_assert_ptr_null(strstr(page, glance));
    ck_assert_ptr_null(strstr(page, roofline));
    ck_assert_ptr_nonnull(strstr(page, "<h2>rng</h2>"));
    free(page);
    page = page_of(made_run(), run_on_host());
    ck_assert_ptr_nonnull(strstr(page, glance));
    ck_assert_ptr_null(strstr(page, roofline));
    free(page);
    page = page_of(run_on_host(), run_on("discrete"));
    ck_assert_ptr_nonnull(strstr(page, roofline));
    free(page);
}
END_TEST

/* Draws values as far apart as possible, and values that are all equal. Every chart must have
 * finite coordinates. */
START_TEST(any_range_can_be_drawn)
{
    static const double ranges[][3] = {{1e-300, 1e-300, 1e300},
                                       {1e300, 1e-300, 1e300},
                                       {1e-300, 1e-300, 1e-300},
                                       {1e300, 1e300, 1e300},
                                       {1, 1, 1},
                                       {1.7e308, 2.3e-308, 1.7e308},
                                       {2.3e-308, 2.3e-308, 2.3e-308}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        json_t *run = run_on("discrete");
        for (size_t which = 0; which < 7; which++)
            made_set(run, which, ranges[i][0], ranges[i][1], ranges[i][2]);
        char *page = page_of(run, json_deep_copy(run));
        ck_assert_int_eq(tool_count(page, "<svg class=\"bars\""), 4);
        ck_assert_int_lt(tool_count(page, "class=\"grid\""), 100);
        ck_assert_int_lt(tool_count(page, "class=\"tick"), 100);
        free(page);
    }
}
END_TEST

/* If a GPU and a CPU are compared, the rates of both must be visible: they are dots on a
 * logarithmic scale, which also has room for every ceiling. */
START_TEST(unlike_devices_are_on_a_logarithmic_scale)
{
    for (int unlike = 0; unlike < 2; unlike++) {
        json_t *fast = made_run(), *slow = made_run();
        made_set(fast, 1, unlike ? 420 : 380, 300, 500); /* the slow device copies at 20 GB/s */
        json_object_set_new(
            made_result(slow, 1), "ceiling",
            json_pack("{s:i, s:s, s:f}", "result", 4, "benchmark", "memcpy", "fraction", 0.002));
        char *page = page_of(fast, slow);
        const char *copy = strstr(page, "<section id=\"copy\">");
        ck_assert_ptr_nonnull(copy);
        *strstr(copy, "</svg>") = '\0';
        ck_assert_int_eq(tool_count(copy, "<circle"), unlike ? 2 : 0);
        ck_assert_int_eq(tool_count(copy, "<rect"), unlike ? 0 : 2);
        ck_assert_int_eq(tool_count(copy, "class=\"ceiling\""), unlike);
        ck_assert_int_eq(tool_count(copy, "y=\"11\">10000</text>"), unlike);
        free(page);
    }
}
END_TEST

/* Labels of the roofline have no exponents: 2048, not 2.05e+03. */
START_TEST(powers_of_two_are_whole)
{
    json_t *run = run_on("discrete");
    json_object_set_new(made_result(run, 0), "bytes", json_real(500)); /* the work is 1e6 */
    char *page = page_of(run, made_run());
    ck_assert_ptr_nonnull(strstr(page, ">1024</text>"));
    ck_assert_ptr_nonnull(strstr(page, ">2048</text>"));
    ck_assert_ptr_nonnull(strstr(page, ">4096</text>"));
    free(page);
}
END_TEST

/* The axis of a chart of two times must reach from one power of ten to another: 1, 10 and 100
 * µs. */
START_TEST(decades_are_whole)
{
    json_t *run = made_run();
    made_set(run, 2, 5e4, 2e3, 9e4);
    char *page = page_of(run, made_run());
    ck_assert_ptr_nonnull(strstr(page, "<line class=\"grid\" x1=\"28%\" x2=\"28%\""));
    ck_assert_ptr_nonnull(strstr(page, "y=\"11\">1.00 µs</text>"));
    ck_assert_ptr_nonnull(strstr(page, "y=\"11\">100 µs</text>"));
    free(page);
}
END_TEST

/* If two files have the same name, legends and headings also name the folder. */
START_TEST(files_of_the_same_name_are_distinguished)
{
    char folder[] = "/tmp/tessera-test-XXXXXX", paths[2][64], arguments[256];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    for (int i = 0; i < 2; i++) {
        char made[MADE_PATH];
        snprintf(paths[i], sizeof paths[i], "%s/%s", folder, i == 0 ? "before" : "after");
        ck_assert_int_eq(mkdir(paths[i], 0700), 0);
        strcat(paths[i], "/run.json");
        made_write(made_run(), made);
        ck_assert_int_eq(rename(made, paths[i]), 0);
    }
    snprintf(arguments, sizeof arguments, "bench report %s %s -o -", paths[0], paths[1]);
    tool_result result = tool_run(arguments);
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    ck_assert_int_eq(tool_count(result.out, "<i></i>Made GPU · before/run<"), 5);
    ck_assert_int_eq(tool_count(result.out, "<i></i>Made GPU · after/run<"), 5);
    ck_assert_int_eq(tool_count(result.out, "<h3>before/run</h3>"), 1);
    ck_assert_int_eq(tool_count(result.out, "<h3>after/run</h3>"), 1);
    tool_result_free(&result);
    for (int i = 0; i < 2; i++) {
        remove(paths[i]);
        *strrchr(paths[i], '/') = '\0';
        rmdir(paths[i]);
    }
    rmdir(folder);
}
END_TEST

static const char hostile[] = "</title></style><script>alert(1)</script><img src=x onerror='a' "
                              "title=\"b\">&amp;\xe2\x80\xae\x01";

/* Replaces each string whose value may be any text by one that would break a page that does not
 * escape it. */
static void poison(json_t *value)
{
    const char *name;
    json_t *member;
    size_t i;
    json_array_foreach(value, i, member)
    {
        if (json_is_string(member))
            json_array_set_new(value, i, json_string(hostile));
        else
            poison(member);
    }
    if (!json_is_object(value))
        return;
    json_object_foreach(value, name, member)
    {
        if (json_is_string(member) && strcmp(name, "schema") != 0 && strcmp(name, "unit") != 0 &&
            strcmp(name, "dtype") != 0)
            json_object_set_new(value, name, json_string(hostile));
        else
            poison(member);
    }
}

START_TEST(hostile_strings_stay_text)
{
    json_t *run = made_run();
    poison(run);
    char *page = page_of(run, made_run());
    ck_assert_int_gt(tool_count(page, "&lt;script&gt;alert(1)&lt;/script&gt;"), 20);
    ck_assert_int_eq(tool_count(page, "<script"), 0);
    ck_assert_int_eq(tool_count(page, "<img"), 0);
    ck_assert_int_eq(tool_count(page, "</style>"), 1);
    ck_assert_int_eq(tool_count(page, "onerror='"), 0);
    ck_assert_int_eq(tool_count(page, "\x01"), 0);
    free(page);
}
END_TEST

#define TEN "a a a a a a a a a a "

static const struct {
    const char *arguments, *sentence;
} mistakes[] = {
    {"bench report",
     "tessera: bench report: missing FILE; 'tessera bench -o FILE.json' writes one\n"},
    {"bench report " TEN TEN TEN "a a a",
     "tessera: bench report: too many files: 33; the maximum is 32\n"},
};

/* What fails later, errors in files included, gives exit code 1. */
static const struct {
    const char *arguments, *sentence;
} unreadable[] = {
    {"bench report /proc/nonexistent.json",
     "tessera: bench report: cannot read '/proc/nonexistent.json': No such file or directory\n"},
    {"bench report /tmp", "tessera: bench report: cannot read '/tmp': Is a directory\n"},
    {"bench compare /dev/null /dev/null", "tessera: bench compare: /dev/null cannot be read as "
                                          "JSON: line 1: '[' or '{' expected near end of file\n"},
    {"bench report " TEST_DATA "/torch_randint.json -o /dev/null",
     "tessera: bench report: " TEST_DATA
     "/torch_randint.json: this is not what 'tessera bench --json' writes\n"},
};

START_TEST(refuses_wrong_arguments)
{
    tool_refuses(mistakes[_i].arguments, mistakes[_i].sentence);
}
END_TEST

START_TEST(refuses_other_files)
{
    tool_reports(unreadable[_i].arguments, unreadable[_i].sentence);
}
END_TEST

START_TEST(a_page_that_cannot_be_written)
{
    char path[MADE_PATH], arguments[160];
    made_write(made_run(), path);
    static const struct {
        const char *output, *reason;
    } outputs[] = {{"/proc/nonexistent/a.html", "No such file or directory"},
                   {"/dev/full", "No space left on device"}};
    for (int i = 0; i < 2; i++) {
        snprintf(arguments, sizeof arguments, "bench report %s -o %s", path, outputs[i].output);
        tool_result result = tool_run(arguments);
        ck_assert_int_eq(result.exit_code, 1);
        ck_assert_ptr_nonnull(strstr(result.err, outputs[i].reason));
        tool_result_free(&result);
    }
    remove(path);
}
END_TEST

/* With -o -, the tool must print the page and nothing else, and create no file named "-". */
START_TEST(a_page_on_standard_output)
{
    char path[MADE_PATH], arguments[160];
    made_write(made_run(), path);
    snprintf(arguments, sizeof arguments, "bench report %s -o -", path);
    tool_result result = tool_run(arguments);
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    ck_assert_str_eq(result.err, "");
    ck_assert_ptr_eq(strstr(result.out, "<!DOCTYPE html>"), result.out);
    ck_assert_int_eq(tool_count(result.out, "<svg class=\"bars\""), 4);
    ck_assert_str_eq(result.out + result.out_size - strlen("</html>\n"), "</html>\n");
    ck_assert_int_eq(access("-", F_OK), -1);
    tool_result_free(&result);
    remove(path);
}
END_TEST

/* Writes a page in the format of the extension `end` or of --format, and returns its text. */
static char *written_as(json_t *run, const char *end, const char *options)
{
    char path[MADE_PATH], output[MADE_PATH + 8], arguments[320];
    made_write(run, path);
    snprintf(output, sizeof output, "%s%s", path, end);
    snprintf(arguments, sizeof arguments, "bench report %s -o %s%s", path, output, options);
    tool_result result = tool_run(arguments);
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    tool_result_free(&result);
    char *text = read_page(output);
    remove(path);
    remove(output);
    return text;
}

static json_t *hostile_run(void)
{
    json_t *run = made_run();
    json_object_set_new(json_array_get(json_object_get(run, "devices"), 0), "name",
                        json_string("<b>G|P\"U*"));
    json_array_append_new(
        json_object_get(run, "failures"),
        json_pack("{s:s, s:n, s:s}", "benchmark", "plan", "device", "text", "wrong"));
    return run;
}

START_TEST(tables_in_markdown)
{
    char *text = written_as(hostile_run(), ".md", "");
    ck_assert_ptr_nonnull(strstr(text, ": tessera 0.1.0, 2026-01-02T03:04:05Z, Made CPU, 2 CPUs\n"
                                       "  - \\<b\\>G\\|P\"U\\*, 8 GiB, made 1.0\n"
                                       "  - warning: the machine was busy\n"
                                       "  - failed: plan: wrong\n"));
    ck_assert_ptr_nonnull(strstr(text, "\n## matmul\n"));
    ck_assert_ptr_nonnull(strstr(text, "\n| \\<b\\>G\\|P\"U\\* | f32 64×65×66 | 100 GFLOP/s | 95.0 "
                                       "GFLOP/s – 105 GFLOP/s | 50 % of fma\\_peak |\n"));
    ck_assert_int_eq(tool_count(text, "\n## "), 6);
    ck_assert_ptr_null(strstr(text, "noisy"));
    free(text);
}
END_TEST

START_TEST(a_table_in_csv)
{
    static const char first[] =
        "run,time,tessera,cpu,device,driver,benchmark,case,unit,median,low,high,best,noisy,"
        "is_ceiling,ceiling,fraction,busbw\r\n";
    for (int i = 0; i < 2; i++) {
        char *text =
            written_as(hostile_run(), i == 0 ? ".csv" : ".txt", i == 0 ? "" : " --format csv");
        ck_assert_ptr_eq(strstr(text, first), text);
        ck_assert_ptr_nonnull(strstr(text, ",\"2026-01-02T03:04:05Z\",\"0.1.0\",\"Made CPU\","
                                           "\"<b>G|P\"\"U*\",\"1.0\",\"matmul\","
                                           "\"f32 64×65×66\",\"GFLOP/s\",100,95,105,106,0,0,"
                                           "\"fma_peak\",0.5,\r\n"));
        ck_assert_int_eq(tool_count(text, "\r\n"), 7);
        free(text);
    }
}
END_TEST

/* A run of `bench peak` has only ceilings. */
START_TEST(ceilings_without_other_results_are_shown)
{
    json_t *run = run_on("discrete"), *results = json_object_get(run, "results");
    for (size_t i = json_array_size(results); i-- > 0;)
        if (json_is_false(tool_member(json_array_get(results, i), "is_ceiling")))
            json_array_remove(results, i);
    json_t *again = json_deep_copy(run);
    char *page = page_of(run, json_deep_copy(run));
    ck_assert_int_eq(tool_count(page, "200 GFLOP/s</td>"), 4);
    ck_assert_int_eq(tool_count(page, "<tr><td>"), 6);
    free(page);
    char *text = written_as(again, ".md", "");
    ck_assert_ptr_nonnull(strstr(text, "\n| Made GPU | f32 | 200 GFLOP/s | "));
    ck_assert_ptr_nonnull(strstr(text, "\n| Made CPU | threads 2 | 40.0 GB/s | "));
    free(text);
}
END_TEST

/* The bus bandwidth of collectives is shown beside the rate. */
START_TEST(bus_bandwidth_is_shown)
{
    char *texts[2];
    for (int i = 0; i < 2; i++) {
        json_t *run = made_run();
        json_object_set_new(made_result(run, 1), "busbw", json_real(37.5));
        texts[i] = written_as(run, i == 0 ? ".html" : ".csv", "");
    }
    ck_assert_int_eq(tool_count(texts[0], " · busbw 37.5</tspan>"), 1);
    ck_assert_int_eq(tool_count(texts[0], "busbw is the rate that the links between ranks carry"),
                     1);
    ck_assert_int_eq(tool_count(texts[1], ",37.5\r\n"), 1);
    free(texts[0]);
    free(texts[1]);
}
END_TEST

/* Two devices of the same name are numbered. */
START_TEST(devices_of_the_same_name_are_numbered)
{
    json_t *twins = made_run_on_twins(), *again = json_deep_copy(twins);
    char *page = page_of(twins, made_run());
    ck_assert_int_eq(tool_count(page, "<i></i>Made GPU · "), 10);
    ck_assert_int_eq(tool_count(page, "<i></i>Made GPU (2)<"), 3); /* two tables and a legend */
    ck_assert_int_eq(tool_count(page, "<dd>Made GPU (2) (discrete)"), 1);
    free(page);
    char *text = written_as(again, ".csv", "");
    ck_assert_int_eq(tool_count(text, ",\"Made GPU\","), 4);
    ck_assert_int_eq(tool_count(text, ",\"Made GPU (2)\","), 1);
    free(text);
}
END_TEST

/* The summary has no maximum number of devices. */
START_TEST(all_devices_are_shown)
{
    enum { DEVICES = 70 };
    json_t *run = made_run(), *devices = json_object_get(run, "devices");
    for (int i = 1; i < DEVICES; i++) {
        json_t *result = json_deep_copy(made_result(run, 1));
        json_array_append_new(devices, json_deep_copy(json_array_get(devices, 0)));
        json_object_set_new(result, "device", json_integer(i));
        json_array_append_new(json_object_get(run, "results"), result);
    }
    char *page = page_of(run, made_run());
    const char *glance = strstr(page, "At a glance"), *end = strstr(glance, "</table>");
    int columns = 0;
    for (const char *at = glance; (at = strstr(at + 1, "<th class=\"n s")) != NULL && at < end;)
        columns++;
    ck_assert_int_eq(columns, DEVICES + 1);
    free(page);
}
END_TEST

START_TEST(what_is_not_drawn_is_listed)
{
    enum { DRAWN = 256 };
    for (int more = 0; more < 2; more++) {
        json_t *run = made_run();
        for (int i = 1; i < DRAWN + more; i++) {
            json_t *result = json_deep_copy(made_result(run, 1));
            json_object_set_new(json_object_get(result, "case"), "row_bytes",
                                json_integer(1000 + i));
            json_array_append_new(json_object_get(run, "results"), result);
        }
        char *page = page_of(run, made_run());
        ck_assert_int_eq(tool_count(page, "The drawing shows 256 cases; all are in the table."),
                         more);
        free(page);
    }
}
END_TEST

/* The tool must not overwrite its input. It recognises an input by its own name, through links, and
 * as the target of standard output. */
START_TEST(a_page_does_not_replace_its_input)
{
    char first[MADE_PATH], second[MADE_PATH], names[4][MADE_PATH + 8], want[320],
        arguments[8 * MADE_PATH];
    made_write(made_run(), first);
    made_write(made_run(), second);
    for (int i = 0; i < 4; i++)
        snprintf(names[i], sizeof names[i], "%s%s", i < 3 ? second : "",
                 (const char *[]){"", ".soft", ".hard", "-"}[i]);
    ck_assert_int_eq(symlink(second, names[1]), 0);
    ck_assert_int_eq(link(second, names[2]), 0);
    char *before = read_page(second);
    for (int i = 0; i < 4; i++) {
        snprintf(arguments, sizeof arguments, "bench report %s %s -o %s", first, second, names[i]);
        tool_result result = i < 3 ? tool_run(arguments) : tool_run_appending(arguments, second);
        snprintf(want, sizeof want,
                 "tessera: bench report: --output would overwrite the input '%s'\n", second);
        ck_assert_str_eq(result.err, want);
        ck_assert_int_eq(result.exit_code, 2);
        tool_result_free(&result);
        char *after = read_page(second);
        ck_assert_str_eq(after, before);
        free(after);
    }
    free(before);
    remove(names[1]);
    remove(names[2]);
    remove(first);
    remove(second);
}
END_TEST

TESTS(bench_page)
{
    tcase_add_test(tests, pairs_are_a_matrix);
    tcase_add_test(tests, memory_is_the_devices_own);
    tcase_add_test(tests, the_page_shows_every_result);
    tcase_add_test(tests, the_faster_of_copy_and_kernel_is_the_memory);
    tcase_add_test(tests, large_rates_are_in_tera);
    tcase_add_test(tests, each_dtype_has_its_roof);
    tcase_add_test(tests, devices_and_hosts_come_first);
    tcase_add_test(tests, results_above_their_ceiling_are_marked);
    tcase_add_test(tests, there_are_no_empty_sections);
    tcase_add_test(tests, any_range_can_be_drawn);
    tcase_add_test(tests, unlike_devices_are_on_a_logarithmic_scale);
    tcase_add_test(tests, powers_of_two_are_whole);
    tcase_add_test(tests, decades_are_whole);
    tcase_add_test(tests, files_of_the_same_name_are_distinguished);
    tcase_add_test(tests, hostile_strings_stay_text);
    tcase_add_loop_test(tests, refuses_wrong_arguments, 0,
                        (int)(sizeof mistakes / sizeof *mistakes));
    tcase_add_loop_test(tests, refuses_other_files, 0,
                        (int)(sizeof unreadable / sizeof *unreadable));
    tcase_add_test(tests, a_page_that_cannot_be_written);
    tcase_add_test(tests, a_page_on_standard_output);
    tcase_add_test(tests, tables_in_markdown);
    tcase_add_test(tests, a_table_in_csv);
    tcase_add_test(tests, ceilings_without_other_results_are_shown);
    tcase_add_test(tests, bus_bandwidth_is_shown);
    tcase_add_test(tests, devices_of_the_same_name_are_numbered);
    tcase_add_test(tests, all_devices_are_shown);
    tcase_add_test(tests, what_is_not_drawn_is_listed);
    tcase_add_test(tests, a_page_does_not_replace_its_input);
}
