/* How each block format arranges its bits. A table with one entry for each format (block_formats.c)
 * describes this, and one code converts all formats by it. Only reading and writing scales, and
 * choosing them when quantising, need code for each kind of format.
 *
 * Element i of a block is scale[i / sub]·x + min[i / sub], where x is the element's level minus
 * `bias`, or entry number `level` of a code book, which is a list of 16 values. In src/quant, a
 * level is a quantisation level: the unsigned integer that the block stores for an element. The low
 * bits of all levels are in one plane of the block, which is a range of its bytes. Their high bits,
 * if any, are in a second plane.
 *
 * Formats below 4 bits per element store several elements together: as the number of a vector in a
 * code book of vectors and the signs of its elements, or as the digits of a number to base 3
 * (code_books.c). Their levels are the elements themselves, as signed bytes, and the format has no
 * planes; `low` is {0, 8, 4}, because shaders find four elements at a time. */
#ifndef TSR_QUANT_BLOCK_FORMAT_H
#define TSR_QUANT_BLOCK_FORMAT_H

#include "tessera/quant.h"

enum {
    TSR__QUANT_MAX_COUNT = 256, /* the largest block_count */
    TSR__QUANT_MAX_SUBS = 16,   /* the most groups; the elements of a group share a scale */
    TSR__QUANT_MAX_BYTES = 256  /* more than the largest block_bytes */
};

/* A plane holds some bits of every level of a block. Its bytes form groups of `run` bytes. The
 * lowest `bits` bits of a group's bytes belong to the first `run` elements, the next bits to the
 * next `run` elements, and so on; the elements after those are in the next group. */
typedef struct tsr__quant_plane {
    uint8_t offset; /* offset of the plane's first byte in the block */
    uint8_t bits;   /* 1, 2, 4 or 8; 0 if there is no such plane */
    uint8_t run;
} tsr__quant_plane;

/* How the scales, and minimums if any, are stored. */
typedef enum tsr__quant_scales {
    TSR__QUANT_F16,      /* one f16 for the block */
    TSR__QUANT_F16_MIN,  /* one f16 for the block, and an f16 minimum that is added */
    TSR__QUANT_E8M0,     /* one power of two, as the byte of its exponent */
    TSR__QUANT_UE4M3,    /* a byte per group: 4 bits of exponent, 3 of mantissa */
    TSR__QUANT_4_4,      /* 4-bit scale and minimum per group, times two f16 of the block */
    TSR__QUANT_6_6,      /* like 4_4, with 6 bits */
    TSR__QUANT_S6,       /* a signed 6-bit scale per group, times an f16 of the block */
    TSR__QUANT_S6_SPLIT, /* like S6, but the bits of the scales are in another order (iq4_xs) */
    TSR__QUANT_S8,       /* like S6, with 8 bits */
    TSR__QUANT_ODD, /* 2·s + 1 with 4 bits s per group, times an f16 of the block and 1/8 (iq2),
                       1/4 (iq3_xxs) or 1 (iq3_s). Byte n has groups 2·n and 2·n + 1. */
    TSR__QUANT_ODD_HIGH /* like ODD, but the high half of one byte per group; the bytes are 8
                           (iq2_xxs) or 4 (iq3_xxs) apart */
} tsr__quant_scales;

/* How a level is converted to x. */
typedef enum tsr__quant_code {
    TSR__QUANT_LINEAR, /* level - bias */
    TSR__QUANT_SIGNED, /* the level's 8 bits as a two's complement integer */
    TSR__QUANT_NL,     /* the code book of iq4_nl and iq4_xs */
    TSR__QUANT_E2M1,   /* twice the value of a 4-bit float; the scales are halved in return */
    /* a code book of vectors each */
    TSR__QUANT_IQ2_XXS,
    TSR__QUANT_IQ2_XS,
    TSR__QUANT_IQ2_S,
    TSR__QUANT_IQ3_XXS,
    TSR__QUANT_IQ3_S,
    TSR__QUANT_TERNARY /* digits to base 3 (tq1_0) */
} tsr__quant_code;

typedef struct tsr__quant_format {
    tsr_quant_format format;
    tsr__quant_plane low, high;
    uint8_t sub; /* the number of elements that share a scale */
    uint8_t bias;
    uint8_t code;          /* a tsr__quant_code */
    uint8_t scales;        /* a tsr__quant_scales */
    uint8_t factor_offset; /* offset of the f16 scale or factor, if the format has one */
    uint8_t min_offset;    /* offset of the f16 minimum or factor of the minimums, if any */
    uint8_t scales_offset; /* offset of the scales of the groups, or of the E8M0 byte */
} tsr__quant_format;

/* Returns the description of a block format, or NULL if the dtype is not one. */
const tsr__quant_format *tsr__quant_format_of(tsr_dtype dtype);

/* Checks the dtype, the count and the size in bytes, and gives the format. `who` is the name of the
 * calling function for the error text. */
tsr_status tsr__quant_check(const char *who, tsr_dtype dtype, int64_t count, uint64_t size_bytes,
                            const tsr__quant_format **out) TSR_NODISCARD;

/* Returns the code book of TSR__QUANT_NL or TSR__QUANT_E2M1: 16 integers. */
const int8_t *tsr__quant_code_book(tsr__quant_code code);

/* Returns true if levels are signed bytes without planes (see above). */
bool tsr__quant_has_vectors(const tsr__quant_format *format);
/* Writes the levels of one block of such a format to `levels`, which has block_count entries. */
void tsr__quant_unpack_vectors(const tsr__quant_format *format, const uint8_t *block,
                               uint8_t *levels);

/* Writes the levels of one block of any format to `levels`, which has block_count entries. */
void tsr__quant_unpack(const tsr__quant_format *format, const uint8_t *block, uint8_t *levels);
/* Writes the planes of one block of a format that has them. Other bytes of the block are not
 * changed. */
void tsr__quant_pack(const tsr__quant_format *format, const uint8_t *levels, uint8_t *block);

/* Scales and minimums of the groups of one block: entry g is for elements g · sub to g · sub + sub
 * − 1. */
typedef struct tsr__quant_groups {
    float scale[TSR__QUANT_MAX_SUBS], min[TSR__QUANT_MAX_SUBS];
} tsr__quant_groups;

void tsr__quant_read_groups(const tsr__quant_format *format, const uint8_t *block,
                            tsr__quant_groups *groups);
/* Rounds scales and minimums to what the block can hold and stores them. Before the call, the bytes
 * of the scales must be 0. */
void tsr__quant_write_groups(const tsr__quant_format *format, const tsr__quant_groups *groups,
                             uint8_t *block);

/* Rounds to the nearest integer, and to the even one of two equally near ones. The result for |x| ≥
 * 2^22, infinity and NaN is arbitrary, but the same on every machine. */
int tsr__quant_nearest(float x);

#endif
