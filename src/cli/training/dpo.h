/* Direct preference optimisation: Rafailov et al., "Direct Preference Optimization: Your Language
 * Model is Secretly a Reward Model" (NeurIPS 2023). */
#ifndef TSR_CLI_TRAINING_DPO_H
#define TSR_CLI_TRAINING_DPO_H

#include "cli/training/rows.h"

/* Rows 2i and 2i + 1 are the preferred and the rejected text of pair i. own[rows] and
 * reference[rows] are their log-probabilities by the trained model and by the base. The loss of a
 * pair is −log σ(z) with
 *
 *     z = beta · ((own − reference of the preferred text) − (own − reference of the rejected one))
 *
 * Returns `scale` times the sum of the losses. slopes[rows] get the derivatives of the result by
 * −own. A pair without labels is ignored. */
double training_dpo(const data_batch *rows, double beta, const double *own, const double *reference,
                    double scale, double *slopes);

#endif
