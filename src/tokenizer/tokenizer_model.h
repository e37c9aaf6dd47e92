/* The numbers of fields in tokenizer.model, which the reader and the writer use. */
#ifndef TSR_TOKENIZER_TOKENIZER_MODEL_H
#define TSR_TOKENIZER_TOKENIZER_MODEL_H

/* how the value of a field is stored */
enum { TSR__WIRE_NUMBER = 0, TSR__WIRE_64 = 1, TSR__WIRE_BYTES = 2, TSR__WIRE_32 = 5 };

enum { TSR__MODEL_PIECE = 1, TSR__MODEL_TRAINING = 2, TSR__MODEL_NORMALIZER = 3 };
/* the fields of a piece; its types are the values of tsr__token_type */
enum { TSR__PIECE_TEXT = 1, TSR__PIECE_SCORE = 2, TSR__PIECE_TYPE = 3 };
enum {
    TSR__TRAINING_MODEL = 3,
    TSR__TRAINING_SIZE = 4,
    TSR__TRAINING_BYTES = 35, /* whether characters without a piece become pieces of their bytes */
    TSR__TRAINING_UNKNOWN = 40,
    TSR__TRAINING_BOS = 41,
    TSR__TRAINING_EOS = 42,
    TSR__TRAINING_PAD = 43
};
enum { TSR__MODEL_BPE = 2 };
enum {
    TSR__NORMALIZER_NAME = 1,
    TSR__NORMALIZER_MAP = 2,
    TSR__NORMALIZER_ADDS_SPACE = 3,
    TSR__NORMALIZER_REMOVES_SPACES = 4,
    TSR__NORMALIZER_ESCAPES_SPACES = 5
};

#endif
