/* The functions by which applications count, in maitred-php and for PHP's command line. */
#ifndef MAITRED_METRICS_H
#define MAITRED_METRICS_H

#include <php.h>

/* The variable of the environment with the descriptors that the extension takes. */
#define MAITRED_METRICS_VARIABLE "MAITRED_METRICS"

/* Counts in the memory of this file from now on. Of another file: nothing is counted. */
void maitred_metrics_map(int fd);

ZEND_FUNCTION(maitred_metric_add);
ZEND_FUNCTION(maitred_metric_set);
ZEND_FUNCTION(maitred_metric_observe);

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_metric_add, 0, 1, _IS_BOOL, 0)
	ZEND_ARG_TYPE_INFO(0, name, IS_STRING, 0)
	ZEND_ARG_TYPE_MASK(0, value, MAY_BE_LONG | MAY_BE_DOUBLE, "1")
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, labels, IS_ARRAY, 0, "[]")
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_metric_value, 0, 2, _IS_BOOL, 0)
	ZEND_ARG_TYPE_INFO(0, name, IS_STRING, 0)
	ZEND_ARG_TYPE_MASK(0, value, MAY_BE_LONG | MAY_BE_DOUBLE, NULL)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, labels, IS_ARRAY, 0, "[]")
ZEND_END_ARG_INFO()

#define MAITRED_METRIC_FUNCTIONS \
	PHP_FE(maitred_metric_add, arginfo_metric_add) \
	PHP_FE(maitred_metric_set, arginfo_metric_value) \
	PHP_FE(maitred_metric_observe, arginfo_metric_value)

#endif
