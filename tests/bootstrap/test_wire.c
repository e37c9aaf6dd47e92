/* The bytes of a rendezvous. What is expected was computed by Python's hmac and hashlib, by the
 * description in wire.h. */
#include <stdio.h>
#include <string.h>

#include "comm/bootstrap/wire.h"
#include "support/check_main.h"

static const char *hex(const uint8_t *bytes, size_t size)
{
    static char text[129];
    for (size_t i = 0; i < size; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return text;
}

static tsr__wire_handshake handshake(uint32_t rank, uint32_t size)
{
    tsr__wire_handshake made = {.rank = rank, .size = size};
    for (int i = 0; i < TSR__WIRE_NONCE; i++) {
        made.rank_nonce[i] = (uint8_t)i;
        made.zero_nonce[i] = (uint8_t)(100 + i);
    }
    return made;
}

static const struct {
    const char *purpose, *token;
    uint32_t rank, size;
    const char *mac;
} proofs[] = {
    {"rank", "a token of some length", 1, 3,
     "6c1a742338efb585deafb48b9f33837e0a12d84164e3c7db8fad460c5d8ff90f"},
    {"zero", "a token of some length", 1, 3,
     "9fb96178b0831047e1765c7d84d25cd89dd3ecf3118cc614649d53ff5b0eee91"},
    {"key", "a token of some length", 1, 3,
     "fc5ac23f69e9b689689c24cd6b0d28554b7ddaf0e85626aead332f8b9a61a90f"},
    {"rank", "", 1, 3, "259c1938f9f121d425c9e25fb16991f3817d7fb1a74367a85a7914661b42ed6b"},
    {"rank",
     "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
     "xxx"
     "xxxx",
     1, 3, "20b5666535cfafe001c32690907126a61844a7fb3188d718af8c6b6f639d810c"},
    {"rank", "a token of some length", 2, 3,
     "36eb0f0d32530825d6fefa032abede1df578bc9da7af773581fd644f4627b6e2"},
    {"rank", "a token of some length", 1, 4,
     "ea86a53a6c7d71093722fa3c715d3dda7c52b23a2670778a920730132d8fcabb"},
};

START_TEST(proves_as_described)
{
    uint8_t mac[TSR__WIRE_MAC];
    tsr__wire_handshake made = handshake(proofs[_i].rank, proofs[_i].size);
    tsr__wire_prove(proofs[_i].purpose, proofs[_i].token, strlen(proofs[_i].token), &made, mac);
    ck_assert_str_eq(hex(mac, sizeof mac), proofs[_i].mac);
    if (proofs[_i].token[0] == '\0') {
        tsr__wire_prove(proofs[_i].purpose, NULL, 0, &made, mac);
        ck_assert_str_eq(hex(mac, sizeof mac), proofs[_i].mac);
    }
}
END_TEST

START_TEST(seals_as_described)
{
    uint8_t mac[TSR__WIRE_MAC], key[TSR__WIRE_MAC], header[TSR__WIRE_HEADER];
    for (int i = 0; i < TSR__WIRE_MAC; i++)
        key[i] = (uint8_t)(200 + i);
    tsr__wire_header(TSR__WIRE_CONTRIBUTION, 45, header);
    tsr__wire_seal("rank", key, header, 7, "hello", 5, mac);
    ck_assert_str_eq(hex(mac, sizeof mac),
                     "51506f9fe82a4a1361388092f810f29c7bb4935187d809cc9bd86b41e959586e");
    tsr__wire_seal("zero", key, header, 7, "hello", 5, mac);
    ck_assert_str_eq(hex(mac, sizeof mac),
                     "a86172312c8738a3d1e900a947bd892bea524ba4ad5069defa18675c2e404a67");
}
END_TEST

START_TEST(writes_headers_as_described)
{
    uint8_t header[TSR__WIRE_HEADER];
    tsr__wire_type type;
    uint64_t size;
    tsr__wire_header(TSR__WIRE_ABORT, UINT64_C(0x0102030405060708), header);
    ck_assert_str_eq(hex(header, sizeof header), "54535242010800000807060504030201");
    ck_assert_ptr_null(tsr__wire_read_header(header, &type, &size));
    ck_assert_int_eq(type, TSR__WIRE_ABORT);
    ck_assert_uint_eq(size, UINT64_C(0x0102030405060708));
}
END_TEST

START_TEST(numbers_survive)
{
    static const uint64_t numbers[] = {
        0, 1, 0x80, 0xffffffffu, UINT64_C(0x8000000000000000), UINT64_MAX};
    uint8_t bytes[8];
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        tsr__wire_put_u64(bytes, numbers[i]);
        ck_assert_uint_eq(tsr__wire_get_u64(bytes), numbers[i]);
        tsr__wire_put_u32(bytes, (uint32_t)numbers[i]);
        ck_assert_uint_eq(tsr__wire_get_u32(bytes), (uint32_t)numbers[i]);
    }
}
END_TEST

START_TEST(reasons_have_words)
{
    ck_assert_str_eq(tsr__wire_reason_text(TSR__WIRE_BAD_TOKEN),
                     "rank 0 has another TESSERA_TOKEN");
    ck_assert_str_eq(tsr__wire_reason_text(TSR__WIRE_BAD_RANK),
                     "rank 0 does not wait for this rank");
    ck_assert_str_eq(tsr__wire_reason_text(TSR__WIRE_BAD_SIZE),
                     "rank 0 waits for another number of ranks");
    ck_assert_str_eq(tsr__wire_reason_text(TSR__WIRE_DUPLICATE),
                     "another process has joined as this rank");
    ck_assert_str_eq(tsr__wire_reason_text(99), "rank 0 refused for an unknown reason");
}
END_TEST

TESTS(wire)
{
    tcase_add_loop_test(tests, proves_as_described, 0, (int)(sizeof proofs / sizeof proofs[0]));
    tcase_add_test(tests, seals_as_described);
    tcase_add_test(tests, writes_headers_as_described);
    tcase_add_test(tests, numbers_survive);
    tcase_add_test(tests, reasons_have_words);
}
