/* Golden cases of tokenizers: texts, and the ids that llama.cpp or Hugging
 * Face's tokenizers give. */
#ifndef TESTS_TOKENIZER_CASES_H
#define TESTS_TOKENIZER_CASES_H

#include <stddef.h>

#include "tessera/tokenizer.h"

/* Bytes in memory; free(data). */
typedef struct octets {
    char *data;
    size_t size;
} octets;

/* Decodes base64. The process ends if it is malformed. */
octets cases_base64(const char *text);

/* Returns whether the ids are exactly those of the text, and prints the difference if not. */
int cases_encodes(const tsr_tokenizer *tokenizer, const char *name, const octets *text,
                  const tsr_encode_params *params, const int32_t *wanted, size_t count);
/* Returns whether the ids decode to the text, and prints the difference if not. */
int cases_decodes(const tsr_tokenizer *tokenizer, const char *name, const int32_t *ids,
                  size_t count, tsr_decode_control control, const octets *wanted);

/* Checks every case of a golden file, tok_*.json or hf_*.json. Sets *cases to their number, and
 * returns the number that failed. */
int cases_check(const tsr_tokenizer *tokenizer, const char *path, size_t *cases);

#endif
