/* Writing HTML. Text from outside must be written by html_text or by a %s of html_line, which
 * escape it. No other function takes text that is not a constant of our own sources. */
#ifndef TSR_BENCH_REPORT_HTML_H
#define TSR_BENCH_REPORT_HTML_H

#include <stdio.h>

/* Writes text between tags or within a quoted attribute: & < > " ' become entities. What is not
 * UTF-8, or not allowed in XML, becomes U+FFFD. */
void html_text(FILE *out, const char *text);

/* Writes our own markup, with three conversions: %s is escaped text, %d an int, and %f a number
 * with up to two decimals. */
void html_line(FILE *out, const char *format, ...);

#endif
