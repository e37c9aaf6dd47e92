/* Makes shaders/include/normal_table.h: polynomials for the inverse of the normal distribution.
 *
 *     cc -O2 -o make_normal_table tests/tools/make_normal_table.c -lm
 *     ./make_normal_table > shaders/include/normal_table.h
 *
 * Let p = t · 2^-33 with t odd and below 2^32 be the probability of lying beyond z > 0, so that p =
 * 2^-33 … 1/2. Write t = 2^octave · (2 − g) with 0 < g ≤ 1. Within one octave z(g) is smooth: its
 * nearest singularity, p = 0, lies at g = 2. Therefore a polynomial of degree 7 has an error of
 * only about 3e-7. It interpolates at Chebyshev nodes, which is close to the best possible
 * polynomial. In the last octave (p from 1/4 to 1/2) z(0) = 0, and fitting z/g keeps the relative
 * error small near 0.
 *
 * Everything is computed in long double, and only the coefficients are rounded to float. The
 * program is in the tree so that the table can be checked and made again; the build does not run
 * it. */
#include <math.h>
#include <stdio.h>

#define OCTAVES 32
#define TERMS 8

static const long double PI = 3.141592653589793238462643383279502884L;

/* Returns z > 0 with tail probability p ≤ 1/2. Uses Newton's method on the logarithm of the tail
 * or, if p > 0.1, on the tail's distance from 1/2. Each is almost a linear function of z there. */
static long double inverse(long double p)
{
    long double z = p > 0.1L ? (0.5L - p) * sqrtl(2 * PI) : sqrtl(-2 * logl(p)) - 1;
    for (int i = 0; i < 60; i++) {
        long double density = expl(-z * z / 2) / sqrtl(2 * PI);
        long double tail = erfcl(z / sqrtl(2)) / 2;
        long double step = p > 0.1L ? (erfl(z / sqrtl(2)) / 2 - (0.5L - p)) / density
                                    : -logl(tail / p) * tail / density;
        z -= step;
        if (fabsl(step) < 1e-18L * z)
            break;
    }
    return z;
}

/* Returns the function that the polynomial of an octave approximates. */
static long double target(int octave, long double g)
{
    if (octave < OCTAVES - 1)
        return inverse(ldexpl(2 - g, octave - 33));
    return inverse(0.5L - g / 4) / g;
}

/* Computes Newton's divided differences at the nodes, and expands them into powers of g. */
static void fit(int octave, int terms, long double *coefficient)
{
    long double node[TERMS], difference[TERMS];
    for (int i = 0; i < terms; i++) {
        node[i] = (1 + cosl(PI * (2 * i + 1) / (2 * terms))) / 2;
        difference[i] = target(octave, node[i]);
    }
    for (int order = 1; order < terms; order++)
        for (int i = terms - 1; i >= order; i--)
            difference[i] = (difference[i] - difference[i - 1]) / (node[i] - node[i - order]);

    for (int i = 0; i < terms; i++)
        coefficient[i] = 0;
    for (int i = terms - 1; i >= 0;
         i--) { /* polynomial = polynomial · (g − node[i]) + difference[i] */
        for (int j = terms - 1; j > 0; j--)
            coefficient[j] = coefficient[j - 1] - node[i] * coefficient[j];
        coefficient[0] = difference[i] - node[i] * coefficient[0];
    }
}

int main(void)
{
    puts("/* Made by tests/tools/make_normal_table.c, which says what it holds: for each octave of "
         "the tail\n"
         " * probability the coefficients of z(g) = c0 + c1·g + … + c7·g^7. Shared by C and GLSL: "
         "the user defines\n"
         " * what ROW makes of one octave. */\n"
         "#ifndef TSR_NORMAL_TABLE_H\n"
         "#define TSR_NORMAL_TABLE_H\n"
         "\n"
         "/* clang-format off */\n"
         "#define TSR_NORMAL_TABLE(ROW) \\");
    for (int octave = 0; octave < OCTAVES; octave++) {
        long double c[TERMS] = {0};
        if (octave < OCTAVES - 1)
            fit(octave, TERMS, c);
        else
            fit(octave, TERMS - 1, c + 1);
        printf("    ROW(");
        for (int i = 0; i < TERMS; i++)
            printf("%.8ef%s", (double)(float)c[i], i + 1 < TERMS ? ", " : "");
        puts(octave + 1 < OCTAVES ? ") \\" : ")");
    }
    puts("/* clang-format on */\n"
         "\n"
         "#endif");
    return 0;
}
