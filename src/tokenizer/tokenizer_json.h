/* Functions that tokenizer_json_read.c and tokenizer_json_steps.c share, the two files of the
 * reader of tokenizer.json. */
#ifndef TSR_TOKENIZER_TOKENIZER_JSON_H
#define TSR_TOKENIZER_TOKENIZER_JSON_H

#include "tokenizer/tokenizer.h"
#include "json/json.h"

/* Reads the object that starts here up to its member "type", and writes this member's value to
 * type[size]. Afterwards the reader is at the start of the object again. */
tsr_status tsr__json_type(tsr__json *json, size_t size, char *type) TSR_NODISCARD;

/* Reads the value of the member "normalizer" into the tokenizer. */
tsr_status tsr__json_normalizer(tsr__json *json, tsr_tokenizer *tokenizer) TSR_NODISCARD;
/* Reads the value of the member "pre_tokenizer" into the tokenizer. Sets *byte_level to whether the
 * pre-tokenizer writes bytes in the alphabet of byte_alphabet.h. */
tsr_status tsr__json_pre_tokenizer(tsr__json *json, tsr_tokenizer *tokenizer,
                                   bool *byte_level) TSR_NODISCARD;
/* Reads the value of the member "post_processor" into the tokenizer. */
tsr_status tsr__json_post_processor(tsr__json *json, tsr_tokenizer *tokenizer) TSR_NODISCARD;

/* The effects of the decoder. tsr__json_decoder reads them from the value of the member "decoder".
 */
typedef struct tsr__json_decoding {
    bool byte_level;    /* spellings are in the alphabet of byte_alphabet.h */
    bool spells_spaces; /* "▁" stands for a space */
    bool strips_start;
} tsr__json_decoding;
tsr_status tsr__json_decoder(tsr__json *json, tsr__json_decoding *decoding) TSR_NODISCARD;

#endif
