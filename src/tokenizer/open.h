/* Readers of the files that contain tokenizers. */
#ifndef TSR_TOKENIZER_OPEN_H
#define TSR_TOKENIZER_OPEN_H

#include "shard/formats/file.h"
#include "tokenizer/tokenizer.h"

/* Each of these fills an empty tokenizer and completes it. */
tsr_status tsr__tokenizer_read_gguf(tsr__file *file, tsr_tokenizer *tokenizer) TSR_NODISCARD;
/* tok….bin of llama2.c. */
tsr_status tsr__tokenizer_read_llama2c(tsr__file *file, tsr_tokenizer *tokenizer) TSR_NODISCARD;
/* tokenizer.model of SentencePiece. */
tsr_status tsr__tokenizer_read_model(tsr__file *file, tsr_tokenizer *tokenizer) TSR_NODISCARD;
/* Like tsr__tokenizer_read_model, but also takes the tokens that `added` has after those of the
 * file. Errors: TSR_ERR_UNSUPPORTED if `added` does not begin with the file's tokens and ids. */
tsr_status tsr__tokenizer_read_model_with(tsr__file *file, const tsr_tokenizer *added,
                                          tsr_tokenizer *tokenizer) TSR_NODISCARD;
/* tokenizer.json; config[config_size] is the text of tokenizer_config.json, or NULL. */
tsr_status tsr__tokenizer_read_json(const char *text, size_t size, const char *config,
                                    size_t config_size, tsr_tokenizer *tokenizer) TSR_NODISCARD;

/* Gives the member "chat_template" of the text of tokenizer_config.json, which the caller must
 * free, or NULL if there is none that is a string. */
tsr_status tsr__tokenizer_chat_of_config(const char *config, size_t size, char **out) TSR_NODISCARD;

/* Opens the tokenizer.model at `path` that belongs to a tokenizer.json of merges over characters,
 * with the tokens that were added there, and checks with some texts that both give the same ids. */
tsr_status tsr__tokenizer_open_scores(const char *path, const tsr_tokenizer *json,
                                      tsr_tokenizer **out) TSR_NODISCARD;

/* What SentencePiece-style tokenizers have in common: spaces become "▁", also one in front of the
 * text if `adds_space` is true. Ranks the tokens by their scores. */
tsr_status tsr__tokenizer_make_spm(tsr_tokenizer *tokenizer, const float *scores,
                                   bool adds_space) TSR_NODISCARD;

#endif
