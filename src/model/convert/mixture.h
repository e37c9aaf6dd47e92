/* Mixtures: block formats chosen for each matrix by what it is and where it is in the model. */
#ifndef TSR_MODEL_CONVERT_MIXTURE_H
#define TSR_MODEL_CONVERT_MIXTURE_H

#include "model/convert/conversion.h"

/* Finds the mixture that the params name, if they name one. Errors: TSR_ERR_INVALID for an unknown
 * name, and for a dtype beside the mixture. */
tsr_status tsr__mixture_find(const tsr_convert_params *params,
                             const tsr__mixture **out) TSR_NODISCARD;

/* Chooses the dtype of each matrix, and notes which have another one because of their rows. */
void tsr__mixture_choose(tsr__conversion *conversion);

/* Returns the number by which GGUF files name the mixture. */
uint32_t tsr__mixture_file_type(const tsr__mixture *mixture);

#endif
