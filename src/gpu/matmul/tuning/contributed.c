#include "gpu/matmul/tuning/contributed.h"

#include "gpu/matmul/tuning/shape_class.h"

/* Sets the class of the product of a contributed choice. Returns false if it describes no
 * product. */
static bool classify(const tsr__chip_tuning *measured, tsr__shape_class *out)
{
    const int ndim = measured->batch > 0 ? 3 : 2;
    const int64_t y_shape[] = {measured->batch, measured->m, measured->n};
    const int64_t a_shape[] = {measured->batch, measured->m, measured->k};
    const int64_t b_shape[] = {measured->batch, measured->transposed ? measured->n : measured->k,
                               measured->transposed ? measured->k : measured->n};
    const int skipped = 3 - ndim;
    tsr_layout y, a, b;
    tsr__matmul_problem problem;

    return tsr_layout_init(measured->dtype, ndim, y_shape + skipped, &y) == TSR_OK &&
           tsr_layout_init(measured->dtype, ndim, a_shape + skipped, &a) == TSR_OK &&
           tsr_layout_init(measured->dtype, ndim, b_shape + skipped, &b) == TSR_OK &&
           tsr__matmul_problem_init(&y, &a, &b, NULL,
                                    tsr_matmul_params(.transpose_b = measured->transposed),
                                    &problem) == TSR_OK &&
           tsr__shape_class_of(&problem, out);
}

static tsr_status add_measured(const tsr__chip_tuning *measured, tsr__tuned_table *table)
{
    tsr__shape_class shape_class;
    tsr__tuned_entry entry = {.config = tsr__matmul_config_at((int)measured->config),
                              .splits = measured->splits};

    if (!classify(measured, &shape_class))
        return TSR_OK;
    entry.shape_class = tsr__shape_class_pack(&shape_class);
    TSR__TRY(tsr__tuned_table_set(table, &entry));
    if (!measured->with_bias)
        return TSR_OK;
    shape_class.epilogue = true;
    entry.shape_class = tsr__shape_class_pack(&shape_class);
    return tsr__tuned_table_set(table, &entry);
}

tsr_status tsr__contributed_add(const tsr__chip *chip, tsr__tuned_table *table)
{
    for (int i = 0; i < chip->tuning_count; i++)
        TSR__TRY(add_measured(&chip->tuning[i], table));
    return TSR_OK;
}
