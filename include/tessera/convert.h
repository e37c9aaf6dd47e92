/* Converting models between Hugging Face folders and GGUF files, and between dtypes of weights.
 * Needs no device.
 *
 *     tsr_model_file *file = NULL;
 *     tsr_convert_stats stats = TSR_INIT(tsr_convert_stats);
 *     tsr_model_file_open("my-model", &file);
 *     tsr_model_convert(file, "my-model.gguf", tsr_convert_params(.dtype = TSR_Q4_K), &stats);
 *     tsr_model_file_close(&file);
 *
 * Threads: conversions are independent of each other. */
#ifndef TESSERA_CONVERT_H
#define TESSERA_CONVERT_H

#include <stdbool.h>

#include "tessera/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_convert_params {
    size_t struct_size;
    /* The dtype of matrices in the destination: f32, f16, bf16, or in GGUF files also a block
     * format that can be quantised (quant.h). 0: each matrix keeps its dtype, except that block
     * formats become f32 in folders of Hugging Face. */
    tsr_dtype dtype;
    bool replace;      /* an existing destination is replaced */
    bool weights_only; /* the destination has no tokenizer */
    /* Called now and then with the bytes of weights written so far, and those of all weights. If it
     * returns false, the conversion stops with TSR_ERR_IO. NULL: not called. */
    bool (*progress)(void *user, uint64_t done_bytes, uint64_t total_bytes);
    /* Called with a sentence for each respect in which the destination differs from the source or
     * from what was asked for. NULL: not called. */
    void (*note)(void *user, const char *sentence);
    void *user;
    /* Instead of `dtype`, for GGUF files: a mixture of block formats, by one of the names that
     * tsr_convert_mixture_at gives, such as "q4_k_m". NULL: none. */
    const char *mixture;
    /* An adapter (lora.h) whose products are added to the weights: a PEFT folder or a GGUF file of
     * llama.cpp. Weights in block formats are added to as numbers, and quantised again. NULL: none.
     */
    const char *adapter;
    double adapter_scale; /* multiplies what is added; 0: 1; TSR_ZERO: 0 */
} tsr_convert_params;
#define tsr_convert_params(...)                                                                    \
    (&(tsr_convert_params){.struct_size = sizeof(tsr_convert_params), __VA_ARGS__})

typedef struct tsr_convert_stats {
    size_t struct_size;
    uint64_t tensors; /* number of tensors in the destination */
    /* number of matrices that have their source's dtype instead of `dtype`, or f16 instead of a
     * block format of the mixture */
    uint64_t kept;
    uint64_t read_bytes;    /* bytes of weights in the source */
    uint64_t written_bytes; /* bytes of all files of the destination */
    uint64_t merged;        /* weights to which the adapter was added */
} tsr_convert_stats;

/* Returns the name of a mixture, or NULL past the last one. A mixture chooses a block format for
 * each matrix by what it is, by its layer and by the model's numbers of heads and experts, as
 * llama.cpp's llama-quantize does under the same name: of "q4_k_m", most matrices are q4_k, and
 * half of those of attention's values and of down are q6_k. Where rows are not whole blocks of 256
 * elements, a format with blocks of 32 takes its place, and where they are not whole blocks of
 * these either, f16. */
TSR_API const char *tsr_convert_mixture_at(int index);

/* Converts a model, with its tokenizer. `destination` is a GGUF file if its name ends in ".gguf".
 * If it has no extension, ends in "/" or is a folder that exists, it is a folder with config.json,
 * generation_config.json, model.safetensors and the tokenizer's files: tokenizer.json,
 * tokenizer.model, tokenizer_config.json, special_tokens_map.json, added_tokens.json, vocab.json,
 * merges.txt and chat_template.jinja. An extension is a dot and letters and digits, the first of
 * which is a letter.
 *
 * - Matrices get the dtype `dtype`, or what the mixture says. Without a mixture, a matrix keeps the
 * dtype of the source if its rows are not whole blocks of `dtype`. Norms, biases and learned
 * positions are f32 in GGUF files; folders have them as the source has them. A tensor whose dtype
 * stays keeps its bits.
 * - Matrices are transposed, and rows of q and k reordered, where the two formats differ.
 * - From a folder to a folder, the tokenizer's files are copied as they are. Otherwise, a
 *   byte-level BPE tokenizer becomes the keys tokenizer.ggml.* or tokenizer.json with
 *   tokenizer_config.json, and a SentencePiece-style tokenizer the same keys or tokenizer.model.
 *   For a GGUF file, a tokenizer.json of merges over characters needs a tokenizer.model beside it,
 *   for the scores. A tokenizer that gives other ids in the destination's format is refused, with
 *   one exception that converters in general use make as well: GGUF files cannot say that text is
 *   normalised to NFC.
 *
 * Weights are read, converted and written in pieces of a few MiB. Everything is written under a
 * temporary name beside the destination and renamed at the end, so a conversion that fails, is
 * stopped or is killed leaves the destination as it was. With `replace`, the files of an existing
 * folder that have the names above are replaced or removed, one after the other; others stay.
 *
 * Errors: those of tsr_model_open for tensors, and of tsr_tokenizer_open;
 * TSR_ERR_INVALID for an unknown mixture or one beside `dtype`, if the destination has another
 * extension, if it exists and `replace` is false, if it is the source, for a value that is NaN,
 * infinite or too large for `dtype`, naming the tensor; TSR_ERR_UNSUPPORTED for a dtype, a
 * configuration or a tokenizer that the destination's format cannot express, naming it; TSR_ERR_IO,
 * also if the disk is full or `progress` returned false; TSR_ERR_NO_MEMORY. With an adapter also:
 * TSR_ERR_NOT_FOUND for one of its files, or for a tensor whose other half is there;
 * TSR_ERR_INVALID for a tensor that the model does not have or that has another shape, naming it;
 * TSR_ERR_UNSUPPORTED for kinds of adapters that lora.h does not read, and for a weight in a format
 * that cannot be written. `params` and `out` may be NULL. */
TSR_API TSR_NODISCARD tsr_status tsr_model_convert(const tsr_model_file *source,
                                                   const char *destination,
                                                   const tsr_convert_params *params,
                                                   tsr_convert_stats *out);

#ifdef __cplusplus
}
#endif

#endif
