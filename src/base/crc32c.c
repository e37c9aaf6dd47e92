/* Computes CRC-32C with the processor's instruction. Without this instruction it uses tables that
 * process 8 bytes at a time (Kounavis and Berry, "A systematic approach to building high
 * performance software-based CRC generators", 2005). tsr__crc32c_shift multiplies the state by a
 * power of x modulo the polynomial, as zlib's crc32_combine does. */
#include "base/crc32c.h"

#include <pthread.h>
#include <string.h>

#define POLYNOMIAL UINT32_C(0x82f63b78) /* bit 31 is the coefficient of x^0 */

static uint32_t tables[8][256];
static uint32_t powers[67]; /* powers[i] is x^(2^i) */
static uint32_t (*update)(uint32_t state, const uint8_t *data, size_t size);

static uint32_t multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (uint32_t bit = UINT32_C(1) << 31; bit != 0; bit >>= 1) {
        if (a & bit)
            product ^= b;
        b = b & 1 ? b >> 1 ^ POLYNOMIAL : b >> 1;
    }
    return product;
}

static uint32_t update_by_tables(uint32_t state, const uint8_t *data, size_t size)
{
    for (; size >= 8; data += 8, size -= 8) {
        const uint32_t low = state ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8 |
                                      (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24);
        state = tables[7][low & 255] ^ tables[6][low >> 8 & 255] ^ tables[5][low >> 16 & 255] ^
                tables[4][low >> 24] ^ tables[3][data[4]] ^ tables[2][data[5]] ^
                tables[1][data[6]] ^ tables[0][data[7]];
    }
    for (; size > 0; data++, size--)
        state = tables[0][(state ^ *data) & 255] ^ state >> 8;
    return state;
}

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("sse4.2"))) static uint32_t
update_by_instruction(uint32_t state, const uint8_t *data, size_t size)
{
    uint64_t wide = state;
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, data, sizeof word);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    state = (uint32_t)wide;
    for (; size > 0; data++, size--)
        state = __builtin_ia32_crc32qi(state, *data);
    return state;
}

static void choose_update(void)
{
    __builtin_cpu_init();
    update = __builtin_cpu_supports("sse4.2") ? update_by_instruction : update_by_tables;
}
#else
static void choose_update(void)
{
    update = update_by_tables;
}
#endif

static void fill_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t state = i;
        for (int bit = 0; bit < 8; bit++)
            state = state & 1 ? state >> 1 ^ POLYNOMIAL : state >> 1;
        tables[0][i] = state;
    }
    for (int t = 1; t < 8; t++)
        for (int i = 0; i < 256; i++)
            tables[t][i] = tables[0][tables[t - 1][i] & 255] ^ tables[t - 1][i] >> 8;
    powers[0] = UINT32_C(1) << 30;
    for (int i = 1; i < 67; i++)
        powers[i] = multiply(powers[i - 1], powers[i - 1]);
    choose_update();
}

static void prepare(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_tables);
}

uint32_t tsr__crc32c_state(uint32_t state, const void *data, size_t size)
{
    prepare();
    return update(state, data, size);
}

uint32_t tsr__crc32c_state_by_tables(uint32_t state, const void *data, size_t size)
{
    prepare();
    return update_by_tables(state, data, size);
}

uint32_t tsr__crc32c_shift(uint32_t state, uint64_t zero_bytes)
{
    prepare();
    for (int i = 3; zero_bytes != 0; i++, zero_bytes >>= 1)
        if (zero_bytes & 1)
            state = multiply(powers[i], state);
    return state;
}

uint32_t tsr__crc32c_of_state(uint32_t state, uint64_t size_bytes)
{
    return ~(state ^ tsr__crc32c_shift(UINT32_MAX, size_bytes));
}

uint32_t tsr__crc32c(const void *data, size_t size)
{
    return ~tsr__crc32c_state(UINT32_MAX, data, size);
}
