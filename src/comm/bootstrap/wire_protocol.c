/* Encodes, decodes and authenticates the messages of a rendezvous. */
#include "comm/bootstrap/wire_protocol.h"

#include <sodium.h>
#include <string.h>

_Static_assert(TSR__WIRE_MAC == crypto_auth_hmacsha256_BYTES, "the MAC is HMAC-SHA256");

static const uint8_t magic[4] = {'T', 'S', 'R', 'B'};

void tsr__wire_put_u32(uint8_t *out, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(value >> 8 * i);
}

void tsr__wire_put_u64(uint8_t *out, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        out[i] = (uint8_t)(value >> 8 * i);
}

uint32_t tsr__wire_get_u32(const uint8_t *bytes)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++)
        value |= (uint32_t)bytes[i] << 8 * i;
    return value;
}

uint64_t tsr__wire_get_u64(const uint8_t *bytes)
{
    return tsr__wire_get_u32(bytes) | (uint64_t)tsr__wire_get_u32(bytes + 4) << 32;
}

void tsr__wire_header(tsr__wire_type type, uint64_t size, uint8_t out[TSR__WIRE_HEADER])
{
    memcpy(out, magic, sizeof magic);
    out[4] = TSR__WIRE_VERSION;
    out[5] = (uint8_t)type;
    out[6] = out[7] = 0;
    tsr__wire_put_u64(out + 8, size);
}

const char *tsr__wire_read_header(const uint8_t bytes[TSR__WIRE_HEADER], tsr__wire_type *type,
                                  uint64_t *size)
{
    if (memcmp(bytes, magic, sizeof magic) != 0)
        return "it does not use this protocol";
    if (bytes[4] != TSR__WIRE_VERSION)
        return "it uses another version of this protocol";
    if (bytes[5] < TSR__WIRE_HELLO || bytes[5] > TSR__WIRE_LEFT_OUT || bytes[6] != 0 ||
        bytes[7] != 0)
        return "its header is malformed";
    *type = (tsr__wire_type)bytes[5];
    *size = tsr__wire_get_u64(bytes + 8);
    return NULL;
}

static void mac_update(crypto_auth_hmacsha256_state *mac, const void *bytes, size_t size)
{
    crypto_auth_hmacsha256_update(mac, (const unsigned char *)bytes, size);
}

static void start_proof(crypto_auth_hmacsha256_state *mac, const char *purpose, const void *token,
                        size_t token_size, const tsr__wire_handshake *handshake)
{
    static const char domain[] = "tessera rendezvous 2 ";
    uint8_t numbers[8];
    tsr__wire_put_u32(numbers, handshake->rank);
    tsr__wire_put_u32(numbers + 4, handshake->size);
    crypto_auth_hmacsha256_init(mac, token != NULL ? token : (const void *)"", token_size);
    mac_update(mac, domain, sizeof domain);
    mac_update(mac, purpose, strlen(purpose) + 1);
    mac_update(mac, numbers, sizeof numbers);
    mac_update(mac, handshake->rank_nonce, sizeof handshake->rank_nonce);
    mac_update(mac, handshake->zero_nonce, sizeof handshake->zero_nonce);
}

void tsr__wire_prove(const char *purpose, const void *token, size_t token_size,
                     const tsr__wire_handshake *handshake, uint8_t out[TSR__WIRE_MAC])
{
    crypto_auth_hmacsha256_state mac;
    start_proof(&mac, purpose, token, token_size, handshake);
    crypto_auth_hmacsha256_final(&mac, out);
}

void tsr__wire_prove_identity(tsr__identity_field field, const char *text, const void *token,
                              size_t token_size, const tsr__wire_handshake *handshake,
                              uint8_t out[TSR__WIRE_MAC])
{
    const uint8_t prefix[2] = {(uint8_t)field, text != NULL};
    crypto_auth_hmacsha256_state mac;
    start_proof(&mac, "identity", token, token_size, handshake);
    mac_update(&mac, prefix, sizeof prefix);
    if (text != NULL)
        mac_update(&mac, text, strlen(text));
    crypto_auth_hmacsha256_final(&mac, out);
}

void tsr__wire_seal(const char *direction, const uint8_t key[TSR__WIRE_MAC],
                    const uint8_t header[TSR__WIRE_HEADER], uint64_t number, const void *payload,
                    size_t size, uint8_t out[TSR__WIRE_MAC])
{
    uint8_t count[8];
    tsr__wire_put_u64(count, number);
    crypto_auth_hmacsha256_state mac;
    crypto_auth_hmacsha256_init(&mac, key, TSR__WIRE_MAC);
    mac_update(&mac, direction, strlen(direction) + 1);
    mac_update(&mac, header, TSR__WIRE_HEADER);
    mac_update(&mac, count, sizeof count);
    if (size > 0)
        mac_update(&mac, payload, size);
    crypto_auth_hmacsha256_final(&mac, out);
}

void tsr__wire_seal_left_out(const uint8_t key[TSR__WIRE_MAC], const uint8_t *fields,
                             uint8_t out[TSR__WIRE_MAC])
{
    static const char domain[] = "tessera recovery: left out";
    crypto_auth_hmacsha256_state mac;
    crypto_auth_hmacsha256_init(&mac, key, TSR__WIRE_MAC);
    mac_update(&mac, domain, sizeof domain);
    mac_update(&mac, fields, TSR__WIRE_LEFT_OUT_SIZE - TSR__WIRE_MAC);
    crypto_auth_hmacsha256_final(&mac, out);
}

const char *tsr__wire_reason_text(uint8_t reason)
{
    switch (reason) {
    case TSR__WIRE_BAD_TOKEN:
        return "rank 0 has another TESSERA_TOKEN";
    case TSR__WIRE_BAD_RANK:
        return "rank 0 does not expect a process of this rank";
    case TSR__WIRE_BAD_SIZE:
        return "rank 0 has another WORLD_SIZE";
    case TSR__WIRE_DUPLICATE:
        return "another process has already joined as this rank";
    case TSR__WIRE_FULL:
        return "enough processes have already joined";
    default:
        return "rank 0 refused for a reason that this version does not know";
    }
}
