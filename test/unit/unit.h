/* unit.h - included by every unit test: cmocka, and the headers that it needs before it. */
#ifndef PL_TEST_UNIT_H
#define PL_TEST_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#endif
