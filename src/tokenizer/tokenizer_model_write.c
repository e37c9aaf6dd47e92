/* Writes tokenizer.model of SentencePiece; see tokenizer_model_read.c. */
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/float16.h"
#include "tokenizer/tokenizer_model.h"
#include "tokenizer/tokenizer_write.h"

static const char format[] = "tokenizer.model";

static tsr_status put_varint(tsr__bytes *m, uint64_t value)
{
    uint8_t bytes[10];
    size_t size = 0;
    for (; value >= 0x80; value >>= 7)
        bytes[size++] = (uint8_t)(value | 0x80);
    bytes[size++] = (uint8_t)value;
    return tsr__bytes_append(m, bytes, size);
}

static tsr_status put_number(tsr__bytes *m, uint64_t field, int64_t value)
{
    TSR__TRY(put_varint(m, field << 3 | TSR__WIRE_NUMBER));
    return put_varint(m, (uint64_t)value);
}

static tsr_status put_bytes(tsr__bytes *m, uint64_t field, const void *bytes, size_t size)
{
    TSR__TRY(put_varint(m, field << 3 | TSR__WIRE_BYTES));
    TSR__TRY(put_varint(m, size));
    return tsr__bytes_append(m, bytes, size);
}

static tsr_status put_piece(const tsr_tokenizer *t, int32_t id, tsr__bytes *submessage,
                            tsr__bytes *m)
{
    const tsr__token *token = &t->vocabulary.tokens[id];
    uint8_t score[4];
    submessage->size = 0;
    tsr__put_u32(score, tsr__bits_of_f32(t->scores[id]));
    TSR__TRY(put_bytes(submessage, TSR__PIECE_TEXT, tsr__token_spelling(&t->vocabulary, id),
                       token->spelling_size));
    TSR__TRY(put_varint(submessage, TSR__PIECE_SCORE << 3 | TSR__WIRE_32));
    TSR__TRY(tsr__bytes_append(submessage, score, sizeof score));
    TSR__TRY(put_number(submessage, TSR__PIECE_TYPE, token->type));
    return put_bytes(m, TSR__MODEL_PIECE, submessage->data, submessage->size);
}

static tsr_status put_parameters(const tsr_tokenizer *t, tsr__bytes *submessage, tsr__bytes *m)
{
    static const char name[] = "identity";
    const struct {
        uint64_t field;
        int64_t value;
    } training[] = {
        {TSR__TRAINING_MODEL, TSR__MODEL_BPE},
        {TSR__TRAINING_SIZE, (int64_t)t->vocabulary.count},
        {TSR__TRAINING_BYTES, t->bytes[0] >= 0},
        {TSR__TRAINING_UNKNOWN, t->unknown},
        {TSR__TRAINING_BOS, t->bos},
        {TSR__TRAINING_EOS, t->eos},
        {TSR__TRAINING_PAD, t->pad},
    };
    submessage->size = 0;
    for (size_t i = 0; i < sizeof training / sizeof *training; i++)
        TSR__TRY(put_number(submessage, training[i].field, training[i].value));
    TSR__TRY(put_bytes(m, TSR__MODEL_TRAINING, submessage->data, submessage->size));
    submessage->size = 0;
    TSR__TRY(put_bytes(submessage, TSR__NORMALIZER_NAME, name, strlen(name)));
    TSR__TRY(put_number(submessage, TSR__NORMALIZER_ADDS_SPACE, t->strips_start));
    TSR__TRY(put_number(submessage, TSR__NORMALIZER_REMOVES_SPACES, 0));
    TSR__TRY(put_number(submessage, TSR__NORMALIZER_ESCAPES_SPACES, 1));
    return put_bytes(m, TSR__MODEL_NORMALIZER, submessage->data, submessage->size);
}

static tsr_status put_all(const tsr_tokenizer *t, tsr__bytes *submessage, tsr__bytes *m)
{
    for (size_t i = 0; i < t->vocabulary.count; i++)
        TSR__TRY(put_piece(t, (int32_t)i, submessage, m));
    return put_parameters(t, submessage, m);
}

static tsr_status check_writable(const tsr_tokenizer *t)
{
    TSR__TRY(tsr__tokenizer_check_around(t));
    TSR__TRY(tsr__tokenizer_check_added(format, false, t));
    if (t->vocabulary.tokens[0].spelling_size == 0)
        return tsr__tokenizer_cannot(format, "that the first token has no text");
    if (t->after > 0 || (t->before == 0) != (t->bos < 0))
        return tsr__tokenizer_cannot(format, "that texts have an EOS behind or no BOS in front");
    for (size_t i = 0; i < t->vocabulary.count; i++) {
        const tsr__token *token = &t->vocabulary.tokens[i];
        if (token->ends && (int32_t)i != t->eos &&
            !tsr__is_end_spelling(tsr__token_spelling(&t->vocabulary, (int32_t)i),
                                  token->spelling_size))
            return tsr__tokenizer_cannot(format, "that several tokens end a text");
    }
    return TSR_OK;
}

tsr_status tsr__tokenizer_save_model(const tsr_tokenizer *t, char **out, size_t *size)
{
    tsr__bytes file = {0}, submessage = {0};
    if (t->kind != TSR_TOKENIZER_SPM)
        return tsr__tokenizer_cannot(format, "merges without scores");
    TSR__TRY(check_writable(t));
    const tsr_status status = put_all(t, &submessage, &file);
    tsr__free(submessage.data);
    if (status != TSR_OK) {
        tsr__free(file.data);
        return status;
    }
    *out = (char *)file.data;
    *size = file.size;
    return TSR_OK;
}
