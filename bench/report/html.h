/* Writes HTML. Text from outside must be written by html_text or by a %s of html_line, which escape
 * it. All other text must be a constant in the source code. */
#ifndef TSR_BENCH_REPORT_HTML_H
#define TSR_BENCH_REPORT_HTML_H

#include <stdio.h>

/* Writes text between tags or within a quoted attribute: & < > " ' become entities. Anything that
 * is not UTF-8, or not allowed in XML, becomes U+FFFD. */
void html_text(FILE *out, const char *text);

/* Writes markup; `format` must be a constant. Three conversions are allowed: %s writes text and
 * escapes it, %d writes an int, and %f writes a number with up to two decimals. */
void html_line(FILE *out, const char *format, ...);

#endif
