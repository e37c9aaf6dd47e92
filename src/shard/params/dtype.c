/* The element types of model files. The sizes of quantised blocks come from GGUF's specification
 * and from ggml. */
#include <string.h>

#include "base/error.h"
#include "shard/params/params.h"

static const tsr_shard_dtype dtypes[] = {
    {"f32", 1, 4},        {"f16", 1, 2},        {"bf16", 1, 2},       {"f64", 1, 8},
    {"i8", 1, 1},         {"i16", 1, 2},        {"i32", 1, 4},        {"i64", 1, 8},
    {"u8", 1, 1},         {"u16", 1, 2},        {"u32", 1, 4},        {"u64", 1, 8},
    {"bool", 1, 1},       {"c64", 1, 8},        {"f8_e4m3", 1, 1},    {"f8_e5m2", 1, 1},
    {"f8_e8m0", 1, 1},    {"f6_e2m3", 4, 3},    {"f6_e3m2", 4, 3},    {"f4", 2, 1},
    {"q4_0", 32, 18},     {"q4_1", 32, 20},     {"q5_0", 32, 22},     {"q5_1", 32, 24},
    {"q8_0", 32, 34},     {"q8_1", 32, 36},     {"q2_k", 256, 84},    {"q3_k", 256, 110},
    {"q4_k", 256, 144},   {"q5_k", 256, 176},   {"q6_k", 256, 210},   {"q8_k", 256, 292},
    {"iq1_s", 256, 50},   {"iq1_m", 256, 56},   {"iq2_xxs", 256, 66}, {"iq2_xs", 256, 74},
    {"iq2_s", 256, 82},   {"iq3_xxs", 256, 98}, {"iq3_s", 256, 110},  {"iq4_nl", 32, 18},
    {"iq4_xs", 256, 136}, {"tq1_0", 256, 54},   {"tq2_0", 256, 66},   {"mxfp4", 32, 17},
    {"nvfp4", 64, 36},
};

/* The names of the types. The index is the type's number in GGUF; numbers that GGUF does not use,
 * or no longer uses, have NULL. */
static const char *const gguf_names[] = {
    "f32",     "f16",   "q4_0",   "q4_1",  NULL,    NULL,     "q5_0", "q5_1",    "q8_0",
    "q8_1",    "q2_k",  "q3_k",   "q4_k",  "q5_k",  "q6_k",   "q8_k", "iq2_xxs", "iq2_xs",
    "iq3_xxs", "iq1_s", "iq4_nl", "iq3_s", "iq2_s", "iq4_xs", "i8",   "i16",     "i32",
    "i64",     "f64",   "iq1_m",  "bf16",  NULL,    NULL,     NULL,   "tq1_0",   "tq2_0",
    NULL,      NULL,    NULL,     "mxfp4", "nvfp4",
};

static int lower(char c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
}

static bool same(const char *a, const char *b)
{
    while (*a != '\0' && lower(*a) == lower(*b)) {
        a++;
        b++;
    }
    return *a == '\0' && *b == '\0';
}

bool tsr__dtype_by_name(const char *name, tsr_shard_dtype *out)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (same(name, dtypes[i].name)) {
            *out = dtypes[i];
            return true;
        }
    return false;
}

bool tsr__dtype_by_gguf(uint32_t number, tsr_shard_dtype *out)
{
    return number < sizeof gguf_names / sizeof *gguf_names && gguf_names[number] != NULL &&
           tsr__dtype_by_name(gguf_names[number], out);
}

bool tsr__dtype_gguf_number(const char *name, uint32_t *out)
{
    for (uint32_t i = 0; i < sizeof gguf_names / sizeof *gguf_names; i++)
        if (gguf_names[i] != NULL && same(name, gguf_names[i])) {
            *out = i;
            return true;
        }
    return false;
}

tsr_status tsr_shard_dtype_find(const char *name, tsr_shard_dtype *out)
{
    TSR__REQUIRE(name != NULL && out != NULL, "shard: %s is NULL", name != NULL ? "out" : "name");
    if (!tsr__dtype_by_name(name, out))
        return tsr__fail(TSR_ERR_NOT_FOUND, "shard: there is no dtype '%.40s'", name);
    return TSR_OK;
}
