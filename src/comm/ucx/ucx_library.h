/* UCX's functions. The library is opened when the first communicator of several processes is
 * created, not when the program starts. The reason is that UCX handles SIGHUP and the signals of
 * crashes as soon as it is loaded, even in a process that never communicates. The macros below
 * redirect UCX's function names to the opened library. */
#ifndef TSR_COMM_UCX_UCX_LIBRARY_H
#define TSR_COMM_UCX_UCX_LIBRARY_H

#define asm __asm__ /* the headers of UCX 1.18 use `asm`, which is not a keyword in C11 */
#include <ucp/api/ucp.h>
#include <ucs/debug/log_def.h>
#undef asm

#include "tessera/base.h"

#define TSR__UCP_FUNCTIONS(X)                                                                      \
    X(ucp_cleanup)                                                                                 \
    X(ucp_config_modify)                                                                           \
    X(ucp_config_read)                                                                             \
    X(ucp_config_release)                                                                          \
    X(ucp_ep_close_nbx)                                                                            \
    X(ucp_ep_create)                                                                               \
    X(ucp_init_version)                                                                            \
    X(ucp_request_cancel)                                                                          \
    X(ucp_request_check_status)                                                                    \
    X(ucp_request_free)                                                                            \
    X(ucp_tag_msg_recv_nbx)                                                                        \
    X(ucp_tag_probe_nb)                                                                            \
    X(ucp_tag_recv_nbx)                                                                            \
    X(ucp_tag_send_nbx)                                                                            \
    X(ucp_worker_arm)                                                                              \
    X(ucp_worker_create)                                                                           \
    X(ucp_worker_destroy)                                                                          \
    X(ucp_worker_get_address)                                                                      \
    X(ucp_worker_get_efd)                                                                          \
    X(ucp_worker_progress)                                                                         \
    X(ucp_worker_release_address)
#define TSR__UCS_FUNCTIONS(X)                                                                      \
    X(ucs_log_push_handler)                                                                        \
    X(ucs_status_string)

typedef struct tsr__ucx_library {
#define X(name) __typeof__(name) *(name);
    TSR__UCP_FUNCTIONS(X)
    TSR__UCS_FUNCTIONS(X)
#undef X
} tsr__ucx_library;

/* The functions of UCX. tsr__ucx_library_open fills this in once per process. */
extern tsr__ucx_library tsr__ucx;

/* Opens UCX if it is not open yet. Returns TSR_ERR_UNSUPPORTED if UCX is not installed.
 * Thread-safe. */
tsr_status tsr__ucx_library_open(void) TSR_NODISCARD;

#ifndef TSR__UCX_LIBRARY_ITSELF
#define ucp_cleanup (*tsr__ucx.ucp_cleanup)
#define ucp_config_modify (*tsr__ucx.ucp_config_modify)
#define ucp_config_read (*tsr__ucx.ucp_config_read)
#define ucp_config_release (*tsr__ucx.ucp_config_release)
#define ucp_ep_close_nbx (*tsr__ucx.ucp_ep_close_nbx)
#define ucp_ep_create (*tsr__ucx.ucp_ep_create)
#define ucp_request_cancel (*tsr__ucx.ucp_request_cancel)
#define ucp_request_check_status (*tsr__ucx.ucp_request_check_status)
#define ucp_request_free (*tsr__ucx.ucp_request_free)
#define ucp_tag_msg_recv_nbx (*tsr__ucx.ucp_tag_msg_recv_nbx)
#define ucp_tag_probe_nb (*tsr__ucx.ucp_tag_probe_nb)
#define ucp_tag_recv_nbx (*tsr__ucx.ucp_tag_recv_nbx)
#define ucp_tag_send_nbx (*tsr__ucx.ucp_tag_send_nbx)
#define ucp_worker_arm (*tsr__ucx.ucp_worker_arm)
#define ucp_worker_create (*tsr__ucx.ucp_worker_create)
#define ucp_worker_destroy (*tsr__ucx.ucp_worker_destroy)
#define ucp_worker_get_address (*tsr__ucx.ucp_worker_get_address)
#define ucp_worker_get_efd (*tsr__ucx.ucp_worker_get_efd)
#define ucp_worker_progress (*tsr__ucx.ucp_worker_progress)
#define ucp_worker_release_address (*tsr__ucx.ucp_worker_release_address)
#define ucs_log_push_handler (*tsr__ucx.ucs_log_push_handler)
#define ucs_status_string (*tsr__ucx.ucs_status_string)
/* UCX's header defines ucp_init as an inline function, so it needs a macro of its own. */
#define ucp_init(params, config, context)                                                          \
    (*tsr__ucx.ucp_init_version)(UCP_API_MAJOR, UCP_API_MINOR, params, config, context)
#endif

#endif
