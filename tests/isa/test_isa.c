/* Judges every kernel for GPUs by its machine code, without a GPU. The driver compiles the kernels
 * of the cases in cases.c: RADV for the family that RADV_FORCE_FAMILY names, or Intel's driver for
 * INTEL_STUB_GPU_PLATFORM. The tests print a table of figures, and compare it with the limits in
 * shaders/gpu/limits.txt. They also compare it with the figures of the same release of Mesa in the
 * folder "figures", so that the effect of a change is visible. TEST_ISA_WRITE=1 writes these
 * figures. */
#include <dirent.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/device/vendors.h"
#include "gpu/pipeline/pipeline.h"
#include "isa/cases.h"
#include "isa/family.h"
#include "isa/machine_code.h"
#include "isa/null_device.h"
#include "support/check_main.h"

#define ROWS_MAX 256
#define FAMILY isa_family()

typedef struct row {
    char kernel[40], name[48];
    VkPipeline pipeline;
    double vgprs, lds, spills, scratch, code;
    double waves;        /* RADV only: subgroups that a SIMD can hold */
    double width, fills; /* Intel only: lanes of a subgroup, and reads of spilled registers */
    isa_figures isa;
    bool keeps_subnormals; /* f16 keeps subnormal numbers */
} row;

static row rows[ROWS_MAX];
static int row_count;
static tsr_device *device;

/* Compiling ------------------------------------------------------------------------------------ */

/* Adds a statistic of RADV or of Intel's driver to a row. */
static void take_statistic(void *user, const char *name, double value)
{
    row *r = user;
    const struct {
        const char *name;
        double *sum;
    } all[] = {
        {"VGPRs", &r->vgprs},
        {"LDS size", &r->lds},
        {"Spilled SGPRs", &r->spills},
        {"Spilled VGPRs", &r->spills},
        {"Scratch size", &r->scratch},
        {"Subgroups per SIMD", &r->waves},
        {"Code size", &r->code},
        {"Max live registers", &r->vgprs},
        {"Workgroup Memory Size", &r->lds},
        {"Spills", &r->spills},
        {"Fills", &r->fills},
        {"Scratch Memory Size", &r->scratch},
        {"Max dispatch width", &r->width},
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(name, all[i].name) == 0)
            *all[i].sum += value;
}

/* A pipeline, and what the library knows about it. */
typedef struct search {
    VkPipeline pipeline;
    const char *kernel;
    double fma_per_step;
} search;

static void find_pipeline(void *user, tsr__shader shader, const uint32_t *spec, int spec_count,
                          VkPipeline pipeline)
{
    search *s = user;

    (void)spec_count;
    if (pipeline != s->pipeline)
        return;
    s->kernel = tsr__shader_binaries[shader].name;
    if (shader == TSR__SHADER_MATMUL_TILED || shader == TSR__SHADER_MATMUL_PAIRS ||
        shader == TSR__SHADER_MATMUL_DOT2)
        s->fma_per_step = (double)spec[3] * spec[4] * spec[5]; /* BK, TM, TN */
}

/* Returns true if the code runs in a mode in which f16 keeps subnormal numbers. On AMD's GPUs, RADV
 * starts it in this mode; on Intel's GPUs, a bit of a control register sets it. */
static bool keeps_subnormals(const char *code)
{
    if (isa_family_is_intel())
        return strstr(code, "cr0<0>            0x00000400") != NULL;
    return !strstr(code, "s_denorm_mode") && !strstr(code, "s_setreg");
}

static void examine(const char *name, VkPipeline pipeline)
{
    search found = {.pipeline = pipeline};

    for (int i = 0; i < row_count; i++)
        if (rows[i].pipeline == pipeline)
            return;
    ck_assert_int_lt(row_count, ROWS_MAX);
    row *r = &rows[row_count++];
    r->pipeline = pipeline;
    tsr__pipelines_visit(device, find_pipeline, &found);
    ck_assert_ptr_nonnull(found.kernel);
    snprintf(r->kernel, sizeof r->kernel, "%s", found.kernel);
    snprintf(r->name, sizeof r->name, "%s", name);
    ck_assert_ok(tsr__pipeline_statistics(device, pipeline, take_statistic, r));
    char *code = null_device_code(device, pipeline);
    ck_assert_ptr_nonnull(code);
    const isa_gpu intel = {(int)r->width, (int)device->info.subgroup_size_min};
    ck_assert_msg(
        isa_read(code, isa_family_is_intel() ? &intel : NULL, found.fma_per_step, &r->isa),
        "%s: unknown machine code", r->kernel);
    r->keeps_subnormals = keeps_subnormals(code);
    free(code);
}

static void recorded(void *user, const char *name)
{
    int count;
    const null_dispatch *dispatches = null_device_take(&count);

    (void)user;
    for (int i = 0; i < count; i++)
        examine(name, dispatches[i].pipeline);
}

static void compile_cases(void)
{
    tsr_stream *stream;

    isa_choose_family();
    device = null_device_open();
    ck_assert_ok(tsr_stream_create(device, &stream));
    isa_record_cases(stream, recorded, NULL);
    tsr_stream_destroy(&stream);
}

static void close_device(void)
{
    tsr_device_close(&device);
}

/* Figures -------------------------------------------------------------------------------------- */

static double share(double part, double of)
{
    return of > 0 ? part / of : 0;
}

static bool family_begins(const char *start)
{
    return strncmp(FAMILY, start, strlen(start)) == 0;
}

/* Returns the number of vector instructions of one step that multiply and add. */
static double fma_instructions(const row *r)
{
    return r->isa.fma - r->isa.pairs;
}

/* Returns the clocks of a SIMD's multiply-adds in one step. RDNA 3 and 4 issue two multiply-adds at
 * once; their matrix units take 32 and 16 clocks for a product of matrices. */
static double clocks_of_products(const row *r)
{
    bool rdna4 = family_begins("gfx12") || family_begins("navi4");
    bool rdna3 = family_begins("gfx11") || family_begins("navi3");

    /* On Intel's GPUs, a product of 8 × 16 × 16 takes 16 clocks, and a multiply-add of 16 lanes
     * takes one. */
    if (isa_family_is_intel())
        return r->isa.matrix > 0 ? r->isa.matrix * 16 : r->isa.fma;
    if (r->isa.matrix > 0)
        return r->isa.matrix * (rdna4 ? 16 : 32);
    return rdna3 || rdna4 ? fma_instructions(r) / 2 : fma_instructions(r);
}

/* Returns the part of the peak that the main loop can reach. Vector instructions and accesses to
 * shared memory overlap. Intel's GPUs are judged by vector instructions only, because their speed
 * of reading shared memory is not known here. */
static double bound_of(const row *r)
{
    double products = clocks_of_products(r), vector = products + r->isa.valu;

    if (isa_family_is_intel())
        return share(products, vector);
    return share(products, vector > r->isa.lds_clocks ? vector : r->isa.lds_clocks);
}

static int widest_store(const row *r)
{
    int main_loop = isa_widest(&r->isa.store), result = isa_widest(&r->isa.result);

    return main_loop > result ? main_loop : result;
}

static double figure(const row *r, const char *name)
{
    const struct {
        const char *name;
        double value;
    } all[] = {
        {"vgprs", r->vgprs},
        {"waves", r->waves},
        {"lds", r->lds},
        {"spills", r->spills},
        {"width", r->width},
        {"scratch", r->scratch},
        {"fma%", 100 * share(fma_instructions(r), fma_instructions(r) + r->isa.valu)},
        {"fma/lds", share(r->isa.fma, r->isa.lds_clocks)},
        {"bound%", 100 * bound_of(r)},
        {"waits", r->isa.waits},
        {"address", r->isa.address},
        {"load", isa_widest(&r->isa.load)},
        {"lds-read", isa_narrowest(&r->isa.lds_read)},
        {"store", widest_store(r)},
        {"flight", r->isa.flight},
        {"result-valu", r->isa.result_valu},
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].name, name) == 0)
            return all[i].value;
    ck_abort_msg("limits.txt: there is no figure \"%s\"", name);
}

/* Writes "4x16+2x4": four accesses of 16 bytes and two of 4. */
static const char *accesses(const isa_accesses *a, char text[64])
{
    static const int widths[ISA_WIDTHS] = {2, 4, 8, 12, 16};
    int used = 0;

    snprintf(text, 64, "-");
    for (int i = ISA_WIDTHS; i-- > 0;)
        if (a->count[i] > 0)
            used += snprintf(text + used, (size_t)(64 - used), "%s%.4gx%d", used ? "+" : "",
                             a->count[i], widths[i]);
    return text;
}

static void print_row(FILE *out, const char *mark, const row *r)
{
    char load[64], store[64], read[64], write[64], result[64];

    fprintf(
        out,
        "%s%-20s %-32s %4.0f %3.0f %6.0f %5.0f %4.0f %5.0f %5.0f %4.0f %4.0f %5.2f %3.0f %3d %4.0f "
        "%4.0f %-10s %-10s %-12s %-12s %-9s %3.0f\n",
        mark, r->kernel, r->name, r->vgprs, isa_family_is_intel() ? r->width : r->waves, r->lds,
        r->isa.fma, r->isa.matrix, r->isa.valu,
        isa_family_is_intel() ? r->spills + r->fills : r->isa.salu, figure(r, "fma%"),
        figure(r, "bound%"), figure(r, "fma/lds"), r->isa.address, r->isa.waits, r->isa.flight,
        r->code / 1024, accesses(&r->isa.load, load), accesses(&r->isa.store, store),
        accesses(&r->isa.lds_read, read), accesses(&r->isa.lds_write, write),
        accesses(&r->isa.result, result), r->isa.result_valu);
}

/* Prints a line for each row; `mark` stands before each line. */
static void print_table(FILE *out, const char *mark)
{
    const bool intel = isa_family_is_intel();

    fprintf(
        out,
        "%s%-20s %-32s %4s %3s %6s %5s %4s %5s %5s %4s %4s %5s %3s %3s %4s %4s %-10s %-10s %-12s "
        "%-12s %-9s %3s\n",
        mark, "kernel", "case", intel ? "live" : "vgpr", intel ? "wid" : "wav", "LDS", "fma", "mat",
        "valu", intel ? "spil" : "salu", "fma%", "bnd%", "f/lds", "adr", "wai", "flgt", "KiB",
        "loads", "stores", "LDS reads", "LDS writes", "result", "vpe");
    for (int i = 0; i < row_count; i++)
        print_row(out, mark, &rows[i]);
}

/* The file of figures -------------------------------------------------------------------------- */

/* Writes the heading of a file of figures. It names what the figures depend on: the family, the
 * release of the driver, and the compiler that made the SPIR-V. */
static void figures_heading(char *text, size_t size)
{
    snprintf(text, size, "# %s, %s, %s\n", FAMILY, tsr_device_get_info(device)->driver_info,
             GLSLC_VERSION);
}

static void figures_path(char *path, size_t size)
{
    char version[64] = "";

    sscanf(tsr_device_get_info(device)->driver_info, "Mesa %63[0-9.]", version);
    ck_assert_str_ne(version, "");
    snprintf(path, size, "%s/mesa-%s-%s.txt", FIGURES_FOLDER, version, FAMILY);
}

static void write_figures(const char *path, const char *heading)
{
    FILE *file = fopen(path, "w");

    ck_assert_msg(file != NULL, "cannot write %s", path);
    fputs(heading, file);
    print_table(file, "");
    ck_assert_int_eq(fclose(file), 0);
}

static bool contains_line(FILE *file, const char *line)
{
    char other[512];

    rewind(file);
    while (fgets(other, sizeof other, file))
        if (strcmp(other, line) == 0)
            return true;
    return false;
}

/* Prints the lines of `a` that are not in `b`. Returns their number. */
static int print_missing(FILE *a, FILE *b, const char *mark)
{
    char line[512];
    int missing = 0;

    rewind(a);
    while (fgets(line, sizeof line, a)) {
        long at = ftell(a);
        if (!contains_line(b, line)) {
            printf("# %s %s", mark, line);
            missing++;
        }
        fseek(a, at, SEEK_SET);
    }
    return missing;
}

/* Tests ---------------------------------------------------------------------------------------- */

START_TEST(figures_are_those_in_the_tree)
{
    char path[512], heading[512], first[512] = "";

    figures_heading(heading, sizeof heading);
    figures_path(path, sizeof path);
    if (getenv("TEST_ISA_WRITE"))
        write_figures(path, heading);
    FILE *file = fopen(path, "r"), *now = tmpfile();
    if (!file)
        SKIP("there is no %s; TEST_ISA_WRITE=1 writes it", path);
    ck_assert_ptr_nonnull(now);
    ck_assert_ptr_nonnull(fgets(first, sizeof first, file));
    if (strcmp(first, heading) != 0)
        SKIP("the figures in the tree are of another compiler: %s, not %s", first, heading);
    fputs(heading, now);
    print_table(now, "");
    int changed = print_missing(file, now, "before") + print_missing(now, file, "now   ");
    fclose(file);
    fclose(now);
    fflush(stdout);
    ck_assert_msg(changed == 0,
                  "the machine code of %s has changed as shown above; if that is right, write the "
                  "new figures with TEST_ISA_WRITE=1",
                  FAMILY);
}
END_TEST

typedef struct limit {
    char kernel[40], name[48], family[16], figure[16], relation[4];
    double value;
} limit;

static void trim(char *text)
{
    size_t length = strlen(text);

    while (length > 0 && text[length - 1] == ' ')
        text[--length] = '\0';
}

/* Parses "KERNEL | CASE | FAMILY | FIGURE >= VALUE". */
static void read_limit(const char *line, limit *out)
{
    int read = sscanf(line, " %39[^|] | %47[^|] | %15[^|] | %15s %3s %lf", out->kernel, out->name,
                      out->family, out->figure, out->relation, &out->value);

    ck_assert_msg(read == 6, "limits.txt: %s", line);
    ck_assert_msg(strcmp(out->relation, "<=") == 0 || strcmp(out->relation, ">=") == 0,
                  "limits.txt: %s", line);
    trim(out->kernel);
    trim(out->name);
    trim(out->family);
}

static bool exceeds(const limit *l, double value)
{
    return strcmp(l->relation, "<=") == 0 ? value > l->value + 1e-9 : value < l->value - 1e-9;
}

/* Compares all rows with one limit. Returns the number of rows that do not keep it. */
static int check_limit(const limit *l, bool *used)
{
    int bad = 0;

    for (int i = 0; i < row_count; i++) {
        if (fnmatch(l->kernel, rows[i].kernel, 0) != 0 || fnmatch(l->name, rows[i].name, 0) != 0 ||
            fnmatch(l->family, FAMILY, 0) != 0)
            continue;
        *used = true;
        double value = figure(&rows[i], l->figure);
        if (exceeds(l, value)) {
            printf("# %s, %s: %s is %.4g, must be %s %.4g\n", rows[i].kernel, rows[i].name,
                   l->figure, value, l->relation, l->value);
            bad++;
        }
    }
    return bad;
}

/* Returns true if a device like this one can use the kernel. */
static bool can_run(const char *kernel)
{
    const tsr_device_info *info = tsr_device_get_info(device);

    const bool intel = info->vendor_id == TSR__VENDOR_INTEL;
    if (strcmp(kernel, "attention_coopmat") == 0 || strcmp(kernel, "delta_scan_coopmat") == 0)
        return info->coopmat_used >= 0 && !intel;
    if (strcmp(kernel, "attention_coopmat_bf16") == 0)
        return info->coopmat_bf16_used >= 0 && !intel;
    if (strcmp(kernel, "matmul_coopmat") == 0 || strcmp(kernel, "matmul_grouped_coopmat") == 0)
        return info->coopmat_used >= 0;
    if (strcmp(kernel, "matmul_coopmat_bf16") == 0 ||
        strcmp(kernel, "matmul_grouped_coopmat_bf16") == 0)
        return info->coopmat_bf16_used >= 0;
    if (strcmp(kernel, "matmul_coopmat2") == 0 || strcmp(kernel, "attention_coopmat2") == 0)
        return info->coopmat2;
    if (strcmp(kernel, "matmul_coopmat2_bf16") == 0 ||
        strcmp(kernel, "attention_coopmat2_bf16") == 0)
        return info->coopmat2_bf16;
    if (strcmp(kernel, "matmul_dot2") == 0)
        return device->dot2;
    if (strcmp(kernel, "matmul_pairs") == 0) /* only on CPU drivers */
        return false;
    for (int i = 0; i < TSR__SHADER_COUNT; i++)
        if (strcmp(tsr__shader_binaries[i].name, kernel) == 0)
            return tsr__shader_binaries[i].variant[device->storage].code != NULL;
    return false;
}

START_TEST(limits_are_kept)
{
    char line[256];
    int bad = 0;
    FILE *file = fopen(LIMITS, "r");

    ck_assert_msg(file != NULL, "cannot read %s", LIMITS);
    while (fgets(line, sizeof line, file)) {
        limit l;
        bool used = false;
        if (line[0] == '#' || line[0] == '\n')
            continue;
        read_limit(line, &l);
        bad += check_limit(&l, &used);
        bool expected = fnmatch(l.family, FAMILY, 0) == 0 &&
                        (strpbrk(l.kernel, "*[") != NULL || can_run(l.kernel));
        ck_assert_msg(used || !expected, "limits.txt: no kernel matches %s", line);
    }
    fclose(file);
    fflush(stdout);
    ck_assert_int_eq(bad, 0);
}
END_TEST

static bool has_row(const char *kernel)
{
    for (int i = 0; i < row_count; i++)
        if (strcmp(rows[i].kernel, kernel) == 0)
            return true;
    return false;
}

START_TEST(every_kernel_has_a_case)
{
    int missing = 0;
    DIR *folder = opendir(KERNELS_FOLDER);

    ck_assert_ptr_nonnull(folder);
    print_table(stdout, "# ");
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char kernel[64];
        int end = 0;
        if (sscanf(entry->d_name, "%63[a-z0-9_].comp%n", kernel, &end) == 1 && end > 0 &&
            can_run(kernel) && !has_row(kernel)) {
            printf("# no case uses %s\n", kernel);
            missing++;
        }
    }
    closedir(folder);
    fflush(stdout);
    ck_assert_int_eq(missing, 0);
}
END_TEST

/* The kernel of this case converts f16 to f32. */
START_TEST(subnormals_of_f16_are_kept)
{
    int found = 0;

    for (int i = 0; i < row_count; i++)
        if (strcmp(rows[i].name, "add f16 row") == 0) {
            ck_assert(rows[i].keeps_subnormals);
            found++;
        }
    ck_assert_int_gt(found, 0);
}
END_TEST

TESTS(isa)
{
    /* The kernels are compiled once for all tests. The tests themselves do not call the driver. */
    tcase_add_unchecked_fixture(tests, compile_cases, close_device);
    tcase_add_test(tests, figures_are_those_in_the_tree);
    tcase_add_test(tests, limits_are_kept);
    tcase_add_test(tests, every_kernel_has_a_case);
    tcase_add_test(tests, subnormals_of_f16_are_kept);
}
