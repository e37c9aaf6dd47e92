/* The bytes of the rendezvous protocol. The expected values were computed with Python's hmac and
 * hashlib from the description in wire_protocol.h. */
#include <stdio.h>
#include <string.h>

#include "comm/bootstrap/wire_protocol.h"
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
     "d7722b6488db6d5a700fe82276a07b418027324264e73cfd65f9a55359037543"},
    {"zero", "a token of some length", 1, 3,
     "79de4a3292b464c81e7cd17cd6daff110b8e76aa7050f207c0baac37847d25dd"},
    {"key", "a token of some length", 1, 3,
     "63d3afa41e4c2cb04c533356852a591a74a9771d4c8111e0c1ef066ab7fe1a19"},
    {"rank", "", 1, 3, "e9a40e49449c90cb4b71f0de2a2f8650c33aadbe92b3cdc7158fa7b059f4554c"},
    {"rank",
     "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
     "xxxxxxx",
     1, 3, "900f4ddf469fba0d10a13b99af89adb533fbebb1598522fce3b8b058d5bdbf18"},
    {"rank", "a token of some length", 2, 3,
     "fb2a9e89ac6ac2d8885eb26e6e32a33d2365563f00290b1b223cfc622e8bca95"},
    {"rank", "a token of some length", 1, 4,
     "b027db6787c73f158875c1a1508da576e63c794049f2fae7a52d13360713a042"},
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

static const struct {
    tsr__identity_field field;
    const char *text, *token, *mac;
} identities[] = {
    {TSR__IDENTITY_JOB_ID, "nightly", "a token of some length",
     "e126c8bf13c31539981badf64426f1d30f67a74ad0279f9703c8c01c473bd0cb"},
    {TSR__IDENTITY_EXECUTABLE, "/usr/bin/train", "a token of some length",
     "3b585aca9537092f5f9e518d070ccacbd1e545cb809a0b1f7767e701f78e3ad7"},
    {TSR__IDENTITY_EXECUTABLE, "/usr/bin/train", "",
     "9e35230fef7ea03c6603840dc752b7fd756a36ec2978098dd6de634481994c48"},
    {TSR__IDENTITY_EXECUTABLE, "", "a token of some length",
     "8c3bb8be4ae77f90bb31d75517e2b74fc329ac4f9243deeaeeb5b0821a757f14"},
    {TSR__IDENTITY_EXECUTABLE, NULL, "a token of some length",
     "575dd0daf25cb22e1229040bba665f9cb016a10a98cad5f33e2fcb0fd154a3f2"},
};

START_TEST(proves_identities_as_described)
{
    uint8_t mac[TSR__WIRE_MAC];
    tsr__wire_handshake made = handshake(1, 3);
    tsr__wire_prove_identity(identities[_i].field, identities[_i].text, identities[_i].token,
                             strlen(identities[_i].token), &made, mac);
    ck_assert_str_eq(hex(mac, sizeof mac), identities[_i].mac);
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
                     "8bcb999b3587f04a00622b381ec02b19aeac4cf7e671986ed8c578a6c3796912");
    tsr__wire_seal("zero", key, header, 7, "hello", 5, mac);
    ck_assert_str_eq(hex(mac, sizeof mac),
                     "49552e2255d4851e55c5d27d6a8b8d6c830a5cd8011fd269b9313aee38009b87");
}
END_TEST

START_TEST(writes_headers_as_described)
{
    uint8_t header[TSR__WIRE_HEADER];
    tsr__wire_type type;
    uint64_t size;
    tsr__wire_header(TSR__WIRE_ABORT, UINT64_C(0x0102030405060708), header);
    ck_assert_str_eq(hex(header, sizeof header), "54535242020800000807060504030201");
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
                     "rank 0 does not expect a process of this rank");
    ck_assert_str_eq(tsr__wire_reason_text(TSR__WIRE_BAD_SIZE), "rank 0 has another WORLD_SIZE");
    ck_assert_str_eq(tsr__wire_reason_text(TSR__WIRE_DUPLICATE),
                     "another process has already joined as this rank");
    ck_assert_str_eq(tsr__wire_reason_text(99),
                     "rank 0 refused for a reason that this version does not know");
}
END_TEST

TESTS(wire)
{
    tcase_add_loop_test(tests, proves_as_described, 0, (int)(sizeof proofs / sizeof proofs[0]));
    tcase_add_loop_test(tests, proves_identities_as_described, 0,
                        (int)(sizeof identities / sizeof identities[0]));
    tcase_add_test(tests, seals_as_described);
    tcase_add_test(tests, writes_headers_as_described);
    tcase_add_test(tests, numbers_survive);
    tcase_add_test(tests, reasons_have_words);
}
