/* Replaces OpenBLAS in the tests of `bench matmul --peer`. Its results are correct but slow; with
 * the variable STAND_IN_WRONG they are wrong. It reports kernels for the processor that
 * STAND_IN_CORE names. */
#include <stdlib.h>

enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112 };

const char *openblas_get_config(void);
const char *openblas_get_corename(void);
int openblas_get_num_threads(void);
void cblas_sgemm(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                 const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);

const char *openblas_get_config(void)
{
    return "OpenBLAS 9.8.7 DYNAMIC_ARCH SkylakeX";
}

const char *openblas_get_corename(void)
{
    const char *core = getenv("STAND_IN_CORE");
    return core != NULL ? core : "SkylakeX";
}

int openblas_get_num_threads(void)
{
    return 2;
}

/* Computes c[m,n] = a[m,k] · b[n,k]ᵀ, the only product that the tool uses. */
void cblas_sgemm(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                 const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc)
{
    if (order != ROW_MAJOR || transpose_a != NO_TRANSPOSE || transpose_b != TRANSPOSE ||
        alpha != 1 || beta != 0)
        abort();
    const float error = getenv("STAND_IN_WRONG") != NULL ? 1.0F : 0.0F;
    for (long i = 0; i < m; i++)
        for (long j = 0; j < n; j++) {
            double sum = 0;
            for (long e = 0; e < k; e++)
                sum += (double)a[i * lda + e] * (double)b[j * ldb + e];
            c[i * ldc + j] = (float)sum + error;
        }
}
