/* Writes a model's configuration: the metadata of a GGUF file, or config.json. Values that the
 * format cannot express are left out without an error; tsr__config_compare finds them. */
#ifndef TSR_MODEL_CONVERT_CONFIG_H
#define TSR_MODEL_CONVERT_CONFIG_H

#include "model/config/config.h"
#include "shard/formats/gguf_write.h"
#include "json/json_write.h"

/* Adds the keys of the configuration, without those of the tokenizer. `name` is the model's name
 * for people. */
tsr_status tsr__config_put_gguf(const tsr_model_config *config, const char *name,
                                tsr__gguf_writer *writer) TSR_NODISCARD;

/* Returns whether the activation is the exact GELU, and other programs that read a GGUF file of the
 * model will compute the approximation with tanh. */
bool tsr__config_gelu_is_exact(const tsr_model_config *config);

/* Divisors of frequencies that GGUF files have as a tensor. */
typedef struct tsr__rope_factors {
    const char *name;
    int64_t count;
    float values[TSR__MOST_PAIRS];
} tsr__rope_factors;
/* Computes the divisors that files of Llama 3 have, or those of Gemma 4, or the two tensors of
 * LongRoPE, and returns the number of tensors. */
int tsr__config_rope_factors(const tsr_model_config *config, tsr__rope_factors out[2]);

/* Write the text of config.json, for weights of this dtype, and of generation_config.json. `mxfp4`:
 * the weights of experts are in MXFP4. */
void tsr__config_print(const tsr_model_config *config, tsr_dtype dtype, bool mxfp4,
                       tsr__json_writer *writer);
void tsr__generation_config_print(const tsr_model_config *config, tsr__json_writer *writer);

/* Checks that a configuration that was written and read back computes the same. Errors:
 * TSR_ERR_UNSUPPORTED, naming a value that the destination cannot express. With NULL as
 * `destination`, checks that the configuration `source` of a stack is that of a model's files.
 * Errors: TSR_ERR_INVALID, naming both values. */
tsr_status tsr__config_compare(const tsr_model_config *source, const tsr_model_config *written,
                               const char *destination) TSR_NODISCARD;

#endif
