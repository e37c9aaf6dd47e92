#include "bench/tune/search.h"

#include <math.h>
#include <string.h>

#include "bench/harness/clock.h"
#include "bench/tune/probes.h"
#include "cli/lib/memory.h"

/* The screening measures each candidate briefly on the smallest product of the class, and drops
 * those that are far slower than the built-in kernel. */
#define SCREEN_PAIRS 3
#define SCREEN_SAMPLE_NS 2e5
#define FAR_BEHIND 2.0
#define HOPELESS 4.0
/* On a busy machine, samples of two equally fast kernels may differ, but never by this factor. */
#define BEYOND_NOISE 20.0
#define NEAR 0.9
#define FINALISTS 4

/* Constants of the main measurement, which follows the screening. */
#define SAMPLES_WANTED 60 /* half of them of the built-in kernel, half of the candidate */
#define SHORTEST_SAMPLE_NS 1e6
#define MIN_PAIRS 7
#define MAX_PAIRS 200

/* A candidate wins if the median of its gain over the built-in kernel is at least this factor, and
 * if it is faster in nine of ten pairs of samples. */
#define GAIN 1.03

/* A tiled kernel that is slow on products of at most this many rows may still be fast on products
 * with more rows, so such measurements do not count there. */
#define FEW_ROWS 8

/* Measuring ------------------------------------------------------------------------------------ */

static tune_ratio summarize(double *ratios, int count)
{
    bench_sort(ratios, count);
    return (tune_ratio){.pairs = count,
                        .median = bench_quantile(ratios, count, 0.5),
                        .p10 = bench_quantile(ratios, count, 0.1),
                        .p90 = bench_quantile(ratios, count, 0.9)};
}

/* Measures the candidate and the built-in kernel alternately, in pairs. Which of the two comes
 * first alternates, too, so that a machine that becomes slower slows both equally. */
static bool measure_pairs(tune_case *test, bool bias, const tsr__tuning_choice *choice,
                          uint64_t repetitions, int fewest, double budget_ns, tune_ratio *out)
{
    double ratios[MAX_PAIRS], start = bench_now_ns();
    int count = 0;
    while (count < fewest || (count < MAX_PAIRS && bench_now_ns() - start < budget_ns)) {
        const tsr__tuning_choice *order[] = {count % 2 ? choice : NULL, count % 2 ? NULL : choice};
        double ns[2];
        for (int i = 0; i < 2; i++)
            if (!tune_case_time(test, bias, order[i], repetitions, &ns[i]))
                return false;
        ratios[count] = count % 2 ? ns[1] / ns[0] : ns[0] / ns[1];
        count++;
    }
    *out = summarize(ratios, count);
    return true;
}

static bool compare_choice(tune_case *test, bool bias, const tsr__tuning_choice *choice,
                           tune_ratio *out)
{
    double budget = test->context->options->seconds * 1e9;
    double sample = budget / SAMPLES_WANTED;
    if (sample < SHORTEST_SAMPLE_NS)
        sample = SHORTEST_SAMPLE_NS;
    return measure_pairs(test, bias, choice, bench_repetitions(sample, test->usual_ns), MIN_PAIRS,
                         budget, out);
}

/* Screening ------------------------------------------------------------------------------------ */

typedef struct finalist {
    tsr__tuning_choice choice;
    double quick; /* speed in relation to the built-in kernel, from the screening */
} finalist;

typedef struct finalists {
    int count;
    finalist all[FINALISTS];
} finalists;

static void enter(finalists *list, const finalist *next)
{
    int place = list->count < FINALISTS ? list->count++ : FINALISTS - 1;
    if (place == FINALISTS - 1 && list->all[place].quick > next->quick)
        return;
    for (; place > 0 && list->all[place - 1].quick < next->quick; place--)
        list->all[place] = list->all[place - 1];
    list->all[place] = *next;
}

static bool is_within(const bench_shape *small, const bench_shape *large)
{
    return small->m <= large->m && small->k <= large->k && small->n <= large->n;
}

/* Returns true if the kernel was far slower on an earlier product that is no larger in any of m, n
 * and k, so that it need not be tried on this one. Kernels for few rows or small matrices are far
 * slower on large ones, but may be the best for products that are smaller in one of m, n and k. */
static bool is_hopeless(const tune_given_up *given_up, const tune_product *product,
                        const char *kernel)
{
    for (int i = 0; i < given_up->count; i++)
        if (given_up->all[i].dtype == product->dtype &&
            given_up->all[i].transposed == product->transposed &&
            is_within(&given_up->all[i].shape, &product->shape) &&
            strcmp(given_up->all[i].kernel, kernel) == 0)
            return true;
    return false;
}

static void give_up(tune_given_up *given_up, const tune_product *product, const char *kernel)
{
    if (product->shape.m <= FEW_ROWS || product->batch > 0 ||
        is_hopeless(given_up, product, kernel))
        return;
    given_up->all = cli_resize(given_up->all, (size_t)given_up->count + 1, sizeof *given_up->all);
    struct tune_hopeless *added = &given_up->all[given_up->count++];
    *added = (struct tune_hopeless){
        .dtype = product->dtype, .transposed = product->transposed, .shape = product->shape};
    strcpy(added->kernel, kernel);
}

static bool screen_one(tune_case *test, tune_given_up *given_up, const tsr__tuning_choice *choice,
                       finalists *list, bool *able)
{
    double ns = INFINITY, usual_ns = INFINITY;
    tune_ratio quick;
    if (!tune_case_verify(test, false, choice, able))
        return false;
    if (!*able)
        return true;
    for (int i = 0;
         i < TUNE_TRIES && (i == 0 || (ns > FAR_BEHIND * usual_ns && ns < BEYOND_NOISE * usual_ns));
         i++)
        if (!tune_case_again(test, choice, &ns) || !tune_case_again(test, NULL, &usual_ns))
            return false;
    if (ns > HOPELESS * usual_ns)
        give_up(given_up, &test->product, choice->kernel);
    if (ns > FAR_BEHIND * usual_ns)
        return true;
    if (!measure_pairs(test, false, choice, bench_repetitions(SCREEN_SAMPLE_NS, ns), SCREEN_PAIRS,
                       0, &quick))
        return false;
    if (quick.median >= NEAR)
        enter(list, &(finalist){.choice = *choice, .quick = quick.median});
    return true;
}

static bool screen(tune_probes *s, tune_given_up *given_up, finalists *list, int *able_count)
{
    tune_case *test = &s->all[0];
    tsr_matmul_params params = tune_case_params(test, false);
    for (int i = 0;; i++) {
        tsr__tuning_choice choice;
        bool able = true;
        tsr_status status = tsr__tuning_candidate(s->context->stream, test->y, test->x, test->w,
                                                  &params, i, &choice);
        if (status == TSR_ERR_NOT_FOUND)
            return true;
        BENCH_TRY(s->context, status);
        if (is_hopeless(given_up, &test->product, choice.kernel))
            continue;
        if (!screen_one(test, given_up, &choice, list, &able))
            return false;
        *able_count += able;
    }
}

/* Deciding ------------------------------------------------------------------------------------- */

/* Describes the kernel with which the device computes a probe now, with the present tuning. */
static bool inspect(tune_probes *s, int probe, bool bias, tsr__tuning_info *out)
{
    const tune_case *test = &s->all[probe];
    tsr_matmul_params params = tune_case_params(test, bias);
    BENCH_TRY(s->context,
              tsr__tuning_inspect(s->context->stream, test->y, test->x, test->w, &params, out));
    return true;
}

/* Sets *does to whether `choice` can compute every probe and is at least `gain` times as fast as
 * the built-in kernel. If `clearly` is set, it must also be faster in nine of ten pairs. If
 * `choice` is NULL, the choice that an earlier tuning has stored is measured. *worst is the
 * smallest gain so far. */
static bool gains(tune_probes *s, bool bias, const tsr__tuning_choice *choice, double gain,
                  bool clearly, bool *does, tune_ratio *worst, double *product)
{
    *does = true;
    *worst = (tune_ratio){0};
    *product = 1;
    for (int i = 0; i < s->count && *does; i++) {
        tune_ratio ratio;
        tsr__tuning_info info;
        if (choice == NULL && !inspect(s, i, bias, &info))
            return false;
        const tsr__tuning_choice *tried = choice != NULL ? choice : &info.chosen;
        if (!tune_case_verify(&s->all[i], bias, tried, does))
            return false;
        if (!*does)
            return true;
        if (!compare_choice(&s->all[i], bias, tried, &ratio))
            return false;
        if (worst->pairs == 0 || ratio.median < worst->median)
            *worst = ratio;
        *product *= ratio.median;
        *does = ratio.median >= gain && (!clearly || ratio.p10 > 1);
    }
    return true;
}

static bool find_best(tune_probes *s, const finalists *list, tune_result *out)
{
    double best = 0;
    for (int i = 0; i < list->count; i++) {
        bool does;
        tune_ratio ratio;
        double product;
        if (!gains(s, false, &list->all[i].choice, GAIN, true, &does, &ratio, &product))
            return false;
        if (does && product > best) {
            best = product;
            out->won = true;
            out->winner = list->all[i].choice;
        }
        if ((does && product >= best) || (!out->won && ratio.median > out->ratio.median))
            out->ratio = ratio;
    }
    return true;
}

/* Measures the winner again. It was selected because its samples were good, perhaps by chance, so
 * new samples must confirm the gain. */
static bool confirm(tune_probes *s, tune_result *out)
{
    double product;
    tune_ratio ratio;
    if (out->won && !gains(s, false, &out->winner, 1, false, &out->won, &out->ratio, &product))
        return false;
    return !out->won || gains(s, true, &out->winner, 1, false, &out->with_bias, &ratio, &product);
}

static bool set_choice(tune_probes *s, bool bias, const tsr__tuning_choice *choice)
{
    const tune_case *test = &s->all[0];
    tsr_matmul_params params = tune_case_params(test, bias);
    BENCH_TRY(s->context,
              tsr__tuning_set(s->context->stream, test->y, test->x, test->w, &params, choice));
    return true;
}

/* If no candidate wins, the choice of an earlier tuning remains unless it is slower now. A good
 * choice may not win again, because on a busy machine it is not clearly faster in every
 * measurement. */
static bool keep_or_drop(tune_probes *s, bool bias, bool *stays, tune_ratio *ratio)
{
    double product;
    tsr__tuning_info info;
    if (!inspect(s, 0, bias, &info))
        return false;
    *stays = info.tuned;
    if (info.tuned && !gains(s, bias, NULL, 1, false, stays, ratio, &product))
        return false;
    return *stays || set_choice(s, bias, NULL);
}

static bool settle(tune_probes *s, tune_result *out)
{
    tune_ratio ratio;
    if (out->won)
        return set_choice(s, false, &out->winner) &&
               set_choice(s, true, out->with_bias ? &out->winner : NULL);
    out->winner = s->all[0].info.chosen;
    if (!keep_or_drop(s, false, &out->won, &out->ratio))
        return false;
    return out->won ? keep_or_drop(s, true, &out->with_bias, &ratio) : set_choice(s, true, NULL);
}

static bool decide(tune_probes *s, tune_given_up *given_up, tune_result *out)
{
    finalists list = {0};
    out->usual = s->all[0].info.usual;
    return screen(s, given_up, &list, &out->candidates) && find_best(s, &list, out) &&
           confirm(s, out) && settle(s, out);
}

bool tune_search(bench_context *context, const tune_product *product, tune_given_up *given_up,
                 tune_result *out, char left_out[TUNE_REASON])
{
    tune_probes s = {.context = context, .left_out = left_out};
    left_out[0] = '\0';
    *out = (tune_result){.product = *product, .device_place = context->device_count - 1};
    bool done = tune_probes_create(&s, product);
    done = done && (left_out[0] != '\0' || decide(&s, given_up, out));
    tune_probes_finish(&s);
    return done;
}
