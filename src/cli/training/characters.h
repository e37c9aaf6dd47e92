/* Texts whose characters are the vocabulary: token i is the i-th of the different characters in
 * ascending order of their code points. */
#ifndef TSR_CLI_TRAINING_CHARACTERS_H
#define TSR_CLI_TRAINING_CHARACTERS_H

#include <stddef.h>
#include <stdint.h>

#include "tessera/tessera.h"

typedef struct training_characters {
    uint32_t *codes; /* [count]: code points, ascending; free it with free() */
    int count;
} training_characters;

/* Reads a file: *out gets its bytes and a zero after them, which the caller frees with free(). */
TSR_NODISCARD tsr_status training_read_text(const char *path, char **out, size_t *size);

/* Adds the characters of a text to the vocabulary. `path` names the text in errors. */
TSR_NODISCARD tsr_status training_characters_add(training_characters *characters, const char *path,
                                                 const char *bytes, size_t size);
/* Gives the tokens of a text whose characters were added: tokens[*count], which the caller frees
 * with free(). */
void training_characters_encode(const training_characters *characters, const char *bytes,
                                size_t size, int32_t **tokens, int64_t *count);
/* Opens the vocabulary as a tokenizer. *json gets the text of its tokenizer.json, which the caller
 * frees with free(). */
TSR_NODISCARD tsr_status training_characters_open(const training_characters *characters,
                                                  char **json, tsr_tokenizer **tokenizer);

#endif
