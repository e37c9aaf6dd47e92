/* The internal interface of opened files of a model. */
#ifndef TSR_MODEL_FILE_H
#define TSR_MODEL_FILE_H

#include "base/error.h"
#include "model/config/config.h"
#include "model/weights/weights.h"

struct tsr_model_file {
    tsr__model_files files;
    tsr__config *config;
    tsr__weights weights; /* only after tsr__model_file_weights has succeeded */
    /* What checking the tensors has found. It is an error only for those who need the weights. */
    tsr_status weights_status;
    tsr__error weights_error;
};

/* Gives the places of the weights, or the error that a tensor is missing or not usable. The result
 * is valid as long as the file. */
tsr_status tsr__model_file_weights(const tsr_model_file *file,
                                   const tsr__weights **out) TSR_NODISCARD;

#endif
