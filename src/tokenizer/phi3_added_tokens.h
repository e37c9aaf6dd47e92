/* Added tokens of Phi-3, which include the spaces after them. GGUF files have no key for that:
 * llama.cpp, and so this library, knows it from the model's name. Source: llama.cpp's
 * src/llama-vocab.cpp. */
#ifndef TSR_TOKENIZER_PHI3_ADDED_TOKENS_H
#define TSR_TOKENIZER_PHI3_ADDED_TOKENS_H

#include <stdbool.h>
#include <stddef.h>

/* Returns whether a model's name, the value of general.name, is one of Phi-3: it contains "phi-3"
 * or "phi3", in capital or small letters. */
bool tsr__is_phi3(const char *name, size_t size);

/* The tokens that do not include the spaces after them. A file needs all of them, and "</s>",
 * because llama.cpp does not open it otherwise. */
#define TSR__PHI3_PLAIN 3
extern const char *const tsr__phi3_plain[TSR__PHI3_PLAIN];

/* Returns whether the added token of this spelling includes the spaces after it. */
bool tsr__phi3_strips(const char *text, size_t size);

#endif
