#include "bench/cases/openblas.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "bench/report/report.h"

/* Constants and a function of CBLAS, the C interface to BLAS. The constants have had these values
 * since it was published. */
enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112 };
typedef void (*sgemm_fn)(int order, int transpose_a, int transpose_b, int m, int n, int k,
                         float alpha, const float *a, int lda, const float *b, int ldb, float beta,
                         float *c, int ldc);

static const char *const libraries[] = {"libopenblas.so.0", "libopenblas.so"};
static sgemm_fn sgemm;
static char name[128], warning[BENCH_WARNING_SIZE];

/* Finds a function in the library. ISO C has no cast from an object pointer to a function pointer;
 * POSIX allows copying the bits. */
static void find_openblas(void *library, const char *symbol, void *function)
{
    void *address = dlsym(library, symbol);
    memcpy(function, &address, sizeof address);
}

/* Returns the name of the OpenBLAS kernels that suit this processor. Returns NULL if the processor
 * may be so old that OpenBLAS's oldest kernels are the right ones. */
static const char *fitting_core(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        return "SkylakeX";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return "Haswell";
#endif
    return NULL;
}

/* Sets the warning if OpenBLAS uses its kernels for Prescott, a processor of 2004. OpenBLAS chooses
 * them if it does not recognise the processor. */
static void check_core(const char *core)
{
    const char *fitting = fitting_core();
    if (strcmp(core, "Prescott") == 0 && fitting != NULL)
        snprintf(warning, sizeof warning,
                 "OpenBLAS runs its slow kernels for a Prescott, as on any processor that it does "
                 "not know; OPENBLAS_CORETYPE=%s chooses better ones",
                 fitting);
}

bool bench_openblas_load(char *problem, size_t size)
{
    if (sgemm != NULL)
        return true;
    void *library = NULL;
    for (size_t i = 0; library == NULL && i < sizeof libraries / sizeof libraries[0]; i++)
        library = dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(problem, size,
                 "--peer: OpenBLAS is not installed (Debian package libopenblas0): %s", dlerror());
        return false;
    }
    int (*threads)(void);
    char *(*config)(void), *(*core_name)(void);
    find_openblas(library, "openblas_get_num_threads", &threads);
    find_openblas(library, "openblas_get_config", &config);
    find_openblas(library, "openblas_get_corename", &core_name);
    find_openblas(library, "cblas_sgemm", &sgemm);
    if (sgemm == NULL) {
        snprintf(problem, size, "--peer: the OpenBLAS found here has no cblas_sgemm");
        return false;
    }
    /* openblas_get_config() returns, for example, "OpenBLAS 0.3.21" and then compile options. Keep
     * the first two words. */
    const char *text = config != NULL ? config() : "OpenBLAS";
    const char *end = strchr(text, ' ');
    size_t length = end != NULL ? (size_t)(end - text) + 1 + strcspn(end + 1, " ") : strlen(text);
    const char *core = core_name != NULL ? core_name() : "an unknown processor";
    snprintf(name, sizeof name, "%.*s sgemm for %s, %d threads", (int)length, text, core,
             threads != NULL ? threads() : 0);
    check_core(core);
    return true;
}

const char *bench_openblas_name(void)
{
    return name;
}

const char *bench_openblas_warning(void)
{
    return warning[0] != '\0' ? warning : NULL;
}

void bench_openblas_matmul(const bench_shape *shape, const float *x, const float *w, float *y)
{
    int m = (int)shape->m, n = (int)shape->n, k = (int)shape->k;
    sgemm(ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE, m, n, k, 1, x, k, w, k, 0, y, n);
}
