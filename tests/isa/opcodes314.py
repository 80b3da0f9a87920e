"""What the documentation of CPython 3.14's `dis` module and `Python/bytecodes.c` say of each opcode a code object may hold.

Data for `test_opcodes314`. A stack effect is a number, or a function of the operand.
"""

EFFECTS = {
    # no operand
    "BINARY_SLICE": -2, "BUILD_TEMPLATE": -1, "CALL_FUNCTION_EX": -3, "CHECK_EG_MATCH": 0, "CHECK_EXC_MATCH": 0,
    "CLEANUP_THROW": -1, "DELETE_SUBSCR": -2, "END_FOR": -1, "END_SEND": -1, "FORMAT_SIMPLE": 0, "FORMAT_WITH_SPEC": -1,
    "GET_AITER": 0, "GET_ANEXT": 1, "GET_ITER": 0, "GET_LEN": 1, "GET_YIELD_FROM_ITER": 0, "LOAD_BUILD_CLASS": 1,
    "LOAD_LOCALS": 1, "MAKE_FUNCTION": 0, "MATCH_KEYS": 1, "MATCH_MAPPING": 1, "MATCH_SEQUENCE": 1, "NOP": 0,
    "NOT_TAKEN": 0, "POP_EXCEPT": -1, "POP_ITER": -1, "POP_TOP": -1, "PUSH_EXC_INFO": 1, "PUSH_NULL": 1,
    "RETURN_GENERATOR": 1, "RETURN_VALUE": -1, "SETUP_ANNOTATIONS": 0, "STORE_SLICE": -4, "STORE_SUBSCR": -3,
    "TO_BOOL": 0, "UNARY_INVERT": 0, "UNARY_NEGATIVE": 0, "UNARY_NOT": 0, "WITH_EXCEPT_START": 1,
    # the operand is a number
    "BINARY_OP": -1, "BUILD_INTERPOLATION": lambda form: -1 - (form & 1), "BUILD_LIST": lambda n: 1 - n,
    "BUILD_MAP": lambda n: 1 - 2 * n, "BUILD_SET": lambda n: 1 - n, "BUILD_SLICE": lambda n: 1 - n,
    "BUILD_STRING": lambda n: 1 - n, "BUILD_TUPLE": lambda n: 1 - n, "CALL": lambda n: -1 - n,
    "CALL_INTRINSIC_1": 0, "CALL_INTRINSIC_2": -1, "CALL_KW": lambda n: -2 - n, "COMPARE_OP": -1, "CONTAINS_OP": -1,
    "CONVERT_VALUE": 0, "COPY": 1, "COPY_FREE_VARS": 0, "DICT_MERGE": -1, "DICT_UPDATE": -1, "GET_AWAITABLE": 0,
    "IS_OP": -1, "LIST_APPEND": -1, "LIST_EXTEND": -1, "LOAD_COMMON_CONSTANT": 1, "LOAD_SMALL_INT": 1, "LOAD_SPECIAL": 1,
    "MAP_ADD": -2, "MATCH_CLASS": -2, "RAISE_VARARGS": lambda n: -n, "RERAISE": -1, "RESUME": 0, "SET_ADD": -1,
    "SET_FUNCTION_ATTRIBUTE": -1, "SET_UPDATE": -1, "SWAP": 0, "UNPACK_EX": lambda n: (n & 0xFF) + (n >> 8),
    "UNPACK_SEQUENCE": lambda n: n - 1, "YIELD_VALUE": 0,
    # a constant, a name, perhaps with flags below it
    "DELETE_ATTR": -1, "DELETE_GLOBAL": 0, "DELETE_NAME": 0, "IMPORT_FROM": 1, "IMPORT_NAME": -1,
    "LOAD_ATTR": lambda name: name & 1, "LOAD_CONST": 1, "LOAD_FROM_DICT_OR_GLOBALS": 0,
    "LOAD_GLOBAL": lambda name: 1 + (name & 1), "LOAD_NAME": 1, "LOAD_SUPER_ATTR": lambda name: -2 + (name & 1),
    "STORE_ATTR": -2, "STORE_GLOBAL": -1, "STORE_NAME": -1,
    # a local, a cell, two locals
    "DELETE_DEREF": 0, "DELETE_FAST": 0, "LOAD_DEREF": 1, "LOAD_FAST": 1, "LOAD_FAST_AND_CLEAR": 1, "LOAD_FAST_BORROW": 1,
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": 2, "LOAD_FAST_CHECK": 1, "LOAD_FAST_LOAD_FAST": 2, "LOAD_FROM_DICT_OR_DEREF": 0,
    "MAKE_CELL": 0, "STORE_DEREF": -1, "STORE_FAST": -1, "STORE_FAST_LOAD_FAST": 0, "STORE_FAST_STORE_FAST": -2,
    # jumps: the effect when they fall through
    "END_ASYNC_FOR": -2, "FOR_ITER": 1, "JUMP_BACKWARD": 0, "JUMP_BACKWARD_NO_INTERRUPT": 0, "JUMP_FORWARD": 0,
    "POP_JUMP_IF_FALSE": -1, "POP_JUMP_IF_NONE": -1, "POP_JUMP_IF_NOT_NONE": -1, "POP_JUMP_IF_TRUE": -1, "SEND": 0,
}  # fmt: skip

# Jumps: (direction, the cleanup instructions at the target, effect of the jump and the cleanup). An exhausted FOR_ITER goes
# past the END_FOR by itself and leaves the iterator to POP_ITER; a finished SEND leaves the receiver to END_SEND.
JUMPS = {
    "FOR_ITER": (1, ("END_FOR", "POP_ITER"), -1),
    "JUMP_BACKWARD": (-1, (), 0),
    "JUMP_BACKWARD_NO_INTERRUPT": (-1, (), 0),
    "JUMP_FORWARD": (1, (), 0),
    "POP_JUMP_IF_FALSE": (1, (), -1),
    "POP_JUMP_IF_NONE": (1, (), -1),
    "POP_JUMP_IF_NOT_NONE": (1, (), -1),
    "POP_JUMP_IF_TRUE": (1, (), -1),
    "SEND": (1, ("END_SEND",), -1),
}
# Its jump operand only tells monitoring tools where the loop began.
NOT_A_JUMP = "END_ASYNC_FOR"

# Units of inline cache behind an instruction.
CACHES = {
    "BINARY_OP": 5, "CALL": 3, "CALL_KW": 3, "COMPARE_OP": 1, "CONTAINS_OP": 1, "FOR_ITER": 1, "JUMP_BACKWARD": 1,
    "LOAD_ATTR": 9, "LOAD_GLOBAL": 4, "LOAD_SUPER_ATTR": 1, "POP_JUMP_IF_FALSE": 1, "POP_JUMP_IF_NONE": 1,
    "POP_JUMP_IF_NOT_NONE": 1, "POP_JUMP_IF_TRUE": 1, "SEND": 1, "STORE_ATTR": 4, "STORE_SUBSCR": 1, "TO_BOOL": 3,
    "UNPACK_SEQUENCE": 1,
}  # fmt: skip

# Operands that are an index into a table of the `opcode` module.
COMMON_CONSTANTS = (AssertionError, NotImplementedError, tuple, all, any)
SPECIAL_METHODS = ("__enter__", "__exit__", "__aenter__", "__aexit__")
SUBSCRIPT = 26  # BINARY_OP's number for `a[b]`
INTRINSICS_1 = """
    1_INVALID PRINT IMPORT_STAR STOPITERATION_ERROR ASYNC_GEN_WRAP UNARY_POSITIVE LIST_TO_TUPLE TYPEVAR PARAMSPEC
    TYPEVARTUPLE SUBSCRIPT_GENERIC TYPEALIAS
""".split()
INTRINSICS_2 = """
    2_INVALID PREP_RERAISE_STAR TYPEVAR_WITH_BOUND TYPEVAR_WITH_CONSTRAINTS SET_FUNCTION_TYPE_PARAMS SET_TYPEPARAM_DEFAULT
""".split()

# In `co_code` only while the interpreter runs it, or never.
INTERNAL = {
    "BINARY_OP_INPLACE_ADD_UNICODE", "CACHE", "ENTER_EXECUTOR", "EXIT_INIT_CHECK", "EXTENDED_ARG", "INTERPRETER_EXIT",
    "RESERVED",
}  # fmt: skip
