/*
 * One transaction of `txbroker.atomic` (docs/atomic.md): a row in a database and a message in a broker, both or neither.
 *
 * `make model` has Spin go through every interleaving of what is modelled here: as the protocol is meant, and once for
 * each of the mistakes that -D compiles in. models/check.py lists the variants and what must come out.
 *
 *   Program   puts the xid's row into the decision table inside its own database transaction, asks the broker to
 *             prepare, commits the database, asks the broker to commit. With SAVEPOINTS it may open one before that,
 *             insert and send something there, and roll back to it.
 *   Resolver  for a prepared xid: puts a row with the mark "rolled back" there, if it can, and ends the xid at the
 *             broker as the row that is there now says. Two of them at once, and a third that belongs to another
 *             database. They are killed and begin again.
 *   Cleaner   deletes decision rows that nobody needs any more, on the ways that a client, a resolver or a later
 *             sweep would.
 *   Broker    forces its state before it answers. What is prepared survives everything, what is active nothing.
 *   Database  commits or aborts what it is asked to; a key that an open transaction has inserted makes others wait.
 *   Nemesis   kills any of them at any time.
 *
 * Messages. A request, once sent, stays in the network for good, and is carried out at any time later, also again: that
 * is delay, repetition and reordering. An answer, once given, can be read at any time later, when it may no longer be
 * true. Loss is that the request is not sent, or that its sender stops waiting.
 *
 * Without LIVENESS nothing bounds how often things go wrong. With it, they go wrong BUDGET times and then stop; what is
 * checked then is that a prepared transaction ends, and that its decision row goes.
 */

#define P  0          /* sessions at a database: the program's,            */
#define R1 1          /* those of two resolvers of the same database,      */
#define R2 2
#define RB 3          /* and one of a resolver of another database         */
#define A  0          /* the program's database: the xid carries its name  */
#define B  1          /* another database, whose resolver sees the same broker */

#ifndef BUDGET
#define BUDGET 3
#endif
#ifdef LIVENESS
byte left = BUDGET;
#define CAN_FAIL (left > 0)
#define FAIL left--
#else
#define CAN_FAIL true
#define FAIL skip
#endif
#define TROUBLE atomic { CAN_FAIL -> FAIL }

mtype = { ACTIVE, PREPARED, COMMITTED, ROLLED_BACK };      /* the broker's transaction; the last two: how it ended */
mtype = { FREE, SAYS_COMMIT, SAYS_ROLLBACK };              /* the xid's row in a decision table                    */
mtype = { IDLE, HOLDS, SHOWN, DONE, REFUSED, LOST };       /* a session's transaction at the database              */
mtype = { BARE };                                          /* open; a rollback to a savepoint has taken its row    */

mtype state = ACTIVE;                                      /* durable from PREPARED on                             */
bool ask_prepare, ask_commit, ask_rollback;                /* requests in the network                              */
bool told_prepared, told_committed, told_rolled_back;      /* answers in the network                               */

bool row;                                                  /* the program's row: committed for good                */
mtype decision[2] = FREE;                                  /* committed rows, per database                         */
mtype session[4] = IDLE;
bool asked[4];                                             /* COMMIT has been sent, and may still be under way     */
bool gone[4];                                              /* the client has left; the server may not know yet     */
bool killed[4];
bool program_over;

bool inner_row, inner_message;                             /* inserted and sent in the savepoint, and not taken back */

#ifdef UNFORCED
bool unforced;                                             /* the newest commit is acknowledged but not on disk    */
#endif

/*
 * SEEN_FIRST: others see a commit, and its locks are free, before it is on disk (InnoDB without a binary log); a crash in
 * between takes it back. Whoever asked for it is answered afterwards only. FORCES_FIRST: a resolver that has read
 * "committed" commits something itself before it goes by that, which forces all that was committed before; a crash in
 * between ends its session, and it begins anew.
 */
#ifdef SEEN_FIRST
bool unforced;
bool era;                                                  /* changes with a crash that took a commit back         */
#define FORCE unforced = false; if :: session[P] == SHOWN -> session[P] = DONE :: else fi
#define NOTE at = era
#else
#define NOTE skip
#endif

/* Both or neither, at every moment; `row` and an ended state never change back. */
inline check() {
    assert(!(row && (state == ACTIVE || state == ROLLED_BACK)));
    assert(!(state == COMMITTED && !row));
    assert(!(state == COMMITTED && inner_row != inner_message));
#if WITNESS == 1
    assert(!(row && state == COMMITTED && killed[P]));     /* it is reached that another than the program commits  */
#elif WITNESS == 2
    assert(!(state == ROLLED_BACK && session[P] == LOST && asked[P] && !killed[P])); /* a COMMIT under way is lost   */
#elif WITNESS == 3
    assert(!(row && session[R1] == REFUSED && session[R2] == REFUSED)); /* both resolvers had waited for the program */
#elif WITNESS == 4
    assert(!(row && decision[A] == SAYS_ROLLBACK));        /* a mark for a committed xid: it proves nothing by itself */
#endif
}

#if defined(OPTIMISTIC) || defined(CHECKED_AT_COMMIT)
#define KEY_IS_FREE(db) true
#else
#define KEY_IS_FREE(db) ((db == A -> session[P] != HOLDS && session[R1] != HOLDS && session[R2] != HOLDS \
                                   : session[RB] != HOLDS))
#endif

#ifdef OPTIMISTIC
#define DOOM(s) if :: session[s] == HOLDS -> session[s] = REFUSED :: else fi
#else
#define DOOM(s) skip
#endif
#ifdef CHECKED_AT_COMMIT
#define MAY_COMMIT(s, db) (session[s] == HOLDS && asked[s] && decision[db] == FREE)
#else
#define MAY_COMMIT(s, db) (session[s] == HOLDS && asked[s])
#endif

/*
 * INSERT of the xid's row: waits for whoever holds the key, then holds it or is refused. OPTIMISTIC: nobody waits, and
 * who commits first dooms those whose transactions overlap (Galera). CHECKED_AT_COMMIT: nobody waits, and a commit is
 * refused if there is a row at that moment (a deferred unique constraint).
 */
inline insert(me, db) {
    atomic {
        KEY_IS_FREE(db) ->
        asked[me] = false;
        gone[me] = false;
        if
        :: decision[db] == FREE -> session[me] = HOLDS;
#ifdef SEPARATE_TRANSACTIONS
            if
            :: me == P -> decision[db] = SAYS_COMMIT        /* autocommit: the row of the decision alone           */
            :: else
            fi
#endif
        :: else -> session[me] = REFUSED
        fi
    }
}

active proctype Broker() {
end:
    do
    :: atomic { ask_prepare && state == ACTIVE -> state = PREPARED; told_prepared = true; check() }
    :: atomic { ask_prepare && state == ROLLED_BACK && !told_rolled_back -> told_rolled_back = true }
    :: atomic { ask_commit && state == PREPARED -> state = COMMITTED; told_committed = true; check() }
    :: atomic { ask_rollback && (state == ACTIVE || state == PREPARED) ->
                state = ROLLED_BACK; told_rolled_back = true; check() }
    /* A resolver that had listed it long ago: refused with how it ended. Nobody may come the other way round. */
    :: atomic { ask_rollback && state == COMMITTED && !told_committed -> told_committed = true }
    :: atomic { ask_commit && state == ROLLED_BACK -> assert(false) }
    od
}

active proctype Database() {
    byte who;
end:
    do
#ifdef SEEN_FIRST
    :: atomic { MAY_COMMIT(P, A) ->
                session[P] = SHOWN; decision[A] = SAYS_COMMIT; row = true; unforced = true; check() }
    :: atomic { unforced -> FORCE }
    :: atomic { CAN_FAIL && unforced -> FAIL;
                unforced = false; era = !era; row = false; decision[A] = FREE; session[P] = LOST; check() }
#else
    :: atomic { MAY_COMMIT(P, A) ->
                session[P] = DONE; row = true; DOOM(R1); DOOM(R2);
#ifdef WRONG_TABLE
                decision[B] = SAYS_COMMIT;
#else
                decision[A] = SAYS_COMMIT;
#endif
#ifdef UNFORCED
                unforced = true;
#endif
                check() }
#endif
#if defined(IN_SAVEPOINT) || defined(BACK_BEFORE_COMMIT)
    :: atomic { session[P] == BARE && asked[P] -> session[P] = DONE; row = true; check() }
    :: atomic { session[P] == BARE && gone[P] && !asked[P] -> session[P] = LOST }
    :: atomic { CAN_FAIL && session[P] == BARE -> FAIL; session[P] = LOST }
#endif
    :: atomic { MAY_COMMIT(R1, A) -> session[R1] = DONE; decision[A] = SAYS_ROLLBACK; DOOM(P); DOOM(R2); check() }
    :: atomic { MAY_COMMIT(R2, A) -> session[R2] = DONE; decision[A] = SAYS_ROLLBACK; DOOM(P); DOOM(R1); check() }
    :: atomic { MAY_COMMIT(RB, B) -> session[RB] = DONE; decision[B] = SAYS_ROLLBACK }
#ifdef CHECKED_AT_COMMIT
    :: atomic { session[P] == HOLDS && asked[P] && decision[A] != FREE -> session[P] = REFUSED }
    :: atomic { session[R1] == HOLDS && asked[R1] && decision[A] != FREE -> session[R1] = REFUSED }
    :: atomic { session[R2] == HOLDS && asked[R2] && decision[A] != FREE -> session[R2] = REFUSED }
#endif
    /* The server sees that a client has left, and has not asked for a commit before. */
    :: atomic { session[P] == HOLDS && gone[P] && !asked[P] -> session[P] = LOST }
    :: atomic { session[R1] == HOLDS && gone[R1] && !asked[R1] -> session[R1] = LOST }
    :: atomic { session[R2] == HOLDS && gone[R2] && !asked[R2] -> session[R2] = LOST }
    :: atomic { session[RB] == HOLDS && gone[RB] && !asked[RB] -> session[RB] = LOST }
    /* It refuses a commit: a deferred constraint, a serialisation failure. */
    :: atomic { CAN_FAIL && session[P] == HOLDS && asked[P] -> FAIL; session[P] = REFUSED }
    /* It crashes: what was open is lost, asked to commit or not. */
    :: atomic { CAN_FAIL &&
                (session[P] == HOLDS || session[R1] == HOLDS || session[R2] == HOLDS || session[RB] == HOLDS) ->
                FAIL;
                for (who : P .. RB) {
                    if
                    :: session[who] == HOLDS -> session[who] = LOST
                    :: else
                    fi
                }
                who = 0 }
#ifdef UNFORCED
    :: atomic { unforced -> unforced = false; if :: true :: row = false; decision[A] = FREE; check() fi }
#endif
    od
}

/* Asks for the prepare and waits; sets `ready`, or not. */
inline prepare() {
    if
    :: ask_prepare = true
    :: TROUBLE
    fi;
    if
    :: told_prepared -> ready = true
    :: told_rolled_back -> ready = false
    :: TROUBLE -> ready = false                             /* no answer: whether it is prepared is not known      */
    fi
}

/*
 * Back to the savepoint. What was sent in it waits in the program (as with SQLAlchemy and Django), and is dropped. A row
 * of the decision table that was inserted after it is gone, and its key is free, while the transaction goes on.
 */
inline roll_back_to_savepoint() {
    atomic {
        inner_row = false;
#ifndef KEEPS_MESSAGES
        inner_message = false;
#endif
#if defined(IN_SAVEPOINT) || defined(BACK_BEFORE_COMMIT)
        if
        :: session[P] == HOLDS -> session[P] = BARE
        :: else
        fi
#endif
    }
}

/* The program's work: without a savepoint or with one, which is released in the end or rolled back to. */
inline work() {
    if
    :: skip
    :: atomic { inner_row = true; inner_message = true };
#ifdef IN_SAVEPOINT
        insert(P, A);
#endif
        if
        :: skip
        :: roll_back_to_savepoint()
        fi
    fi
}

#define IN_TRANSACTION (session[P] == HOLDS || session[P] == BARE)

active proctype Program() {
    bool ready;
    {
#ifdef WITH_BEGIN
        insert(P, A);
#endif
#ifdef SAVEPOINTS
        work();
#endif
#ifdef PREPARE_FIRST
        prepare();
        if
        :: ready -> insert(P, A)
        :: !ready
        fi;
#else
#if defined(WITH_BEGIN) || defined(IN_SAVEPOINT)
        if
        :: session[P] == IDLE -> insert(P, A)
        :: session[P] != IDLE                               /* inserted before                                      */
        fi;
#else
        insert(P, A);
#endif
        if
        :: IN_TRANSACTION -> prepare()
        :: !IN_TRANSACTION -> ready = false
        fi;
#ifdef BACK_BEFORE_COMMIT
        roll_back_to_savepoint();                           /* a callback does that, after step 3                    */
#endif
#endif
        if
        :: atomic { ready && IN_TRANSACTION -> asked[P] = true };
            if
            :: session[P] == DONE -> ask_commit = true
            :: session[P] == REFUSED -> ask_rollback = true
#ifdef COMMIT_OF_NOTHING
            :: session[P] == LOST -> ask_commit = true      /* the driver has no transaction any more, and is content */
#else
            :: session[P] == LOST -> goto unknown
#endif
            :: TROUBLE -> goto unknown                      /* the connection dies while COMMIT is under way       */
            fi
        :: atomic { !(ready && IN_TRANSACTION) -> gone[P] = true };   /* never asked to commit: it cannot     */
            if
            :: ask_rollback = true
            :: TROUBLE
            fi
        fi;
        goto over;
unknown:
#ifdef UNKNOWN_IS_FAILURE
        ask_rollback = true;
#endif
        skip
    } unless { killed[P] };
over:
    gone[P] = true;
    program_over = true
}

#ifndef NO_RESOLVER
proctype Resolver(byte me; byte db) {
    mtype mark;
#ifdef SEEN_FIRST
    bool at;
#endif
end:
    do
    :: {
#ifdef FOREIGN
        state == PREPARED;                                  /* lists what is prepared, whoever it belongs to       */
#else
        state == PREPARED && db == A;
#endif
#ifdef LOOK_ONLY
        mark = (decision[db] == SAYS_COMMIT -> SAYS_COMMIT : SAYS_ROLLBACK);
#else
        if
        :: atomic { decision[db] != FREE -> mark = decision[db]; NOTE; goto decided }
        :: atomic { decision[db] == FREE -> skip }
        fi;
        insert(me, db);
        if
        :: atomic { session[me] == HOLDS -> asked[me] = true };
            if
            :: session[me] == DONE -> mark = SAYS_ROLLBACK
            :: session[me] == REFUSED -> mark = FREE        /* try again: look again                               */
            :: session[me] == LOST -> mark = FREE
            :: TROUBLE -> mark = FREE                       /* the mark may be there or not                        */
            fi
        :: atomic { session[me] == REFUSED -> mark = decision[db]; NOTE }  /* FREE if it was deleted: look again   */
        :: session[me] == LOST -> mark = FREE
        fi;
#endif
decided:
#ifdef FORCES_FIRST
        atomic {
            if
            :: mark == SAYS_COMMIT && at == era -> FORCE
            :: mark == SAYS_COMMIT && at != era -> mark = FREE
            :: else
            fi
        };
#endif
        if
        :: mark == SAYS_COMMIT -> ask_commit = true; if :: told_committed :: TROUBLE fi
        :: mark == SAYS_ROLLBACK -> ask_rollback = true; if :: told_rolled_back :: told_committed :: TROUBLE fi
        :: mark == FREE
        fi;
        } unless { atomic { killed[me] -> killed[me] = false; gone[me] = true } };
        mark = 0
    od
}
#endif

active proctype Cleaner() {
end:
    do
    /* Who was told how it ended deletes the row. */
    :: atomic { decision[A] == SAYS_COMMIT && told_committed -> assert(state == COMMITTED); decision[A] = FREE }
#ifdef ROW_EARLY
    :: atomic { decision[A] == SAYS_COMMIT && ask_commit -> decision[A] = FREE }
#endif
#ifdef MARKS_KEPT
    :: atomic { decision[A] == SAYS_ROLLBACK && told_rolled_back && program_over && session[P] != HOLDS ->
                decision[A] = FREE }
#else
    :: atomic { decision[A] == SAYS_ROLLBACK && (told_rolled_back || told_committed) -> decision[A] = FREE }
    :: decision[A] == SAYS_ROLLBACK ->
        if
        :: atomic { state != PREPARED -> if :: decision[A] == SAYS_ROLLBACK -> decision[A] = FREE :: else fi }
        :: state == PREPARED
        fi
#endif
    /* A sweep of what the dead have left: it reads the rows, then the broker's list, then it deletes. */
#ifdef SWEEP_LISTS_FIRST
    :: state != PREPARED ->
        if
        :: atomic { decision[A] == SAYS_COMMIT -> decision[A] = FREE }
        :: decision[A] != SAYS_COMMIT
        fi
#else
    :: decision[A] == SAYS_COMMIT ->
        if
        :: state != PREPARED ->
            atomic { if :: decision[A] == SAYS_COMMIT -> assert(state == COMMITTED); decision[A] = FREE :: else fi }
        :: state == PREPARED
        fi
#endif
#ifdef SWEEP_OTHER_BROKER
    :: atomic { decision[A] == SAYS_COMMIT -> decision[A] = FREE }      /* not prepared in another broker's list   */
#endif
    od
}

active proctype Nemesis() {
end:
    do
    :: atomic { CAN_FAIL && !killed[P] && !program_over -> FAIL; killed[P] = true }
    :: atomic { CAN_FAIL && !killed[R1] -> FAIL; killed[R1] = true }
    :: atomic { CAN_FAIL && !killed[R2] -> FAIL; killed[R2] = true }
    /* The broker crashes, or the client's session ends: what is only active is rolled back. */
    :: atomic { CAN_FAIL && state == ACTIVE -> FAIL; state = ROLLED_BACK; check() }
    od
}

init {
#ifndef NO_RESOLVER
    atomic {
        run Resolver(R1, A);
#ifndef ONE_RESOLVER
        run Resolver(R2, A);
#endif
        run Resolver(RB, B)
    }
#else
    skip
#endif
}

#ifdef LIVENESS
ltl ends { [] (state == PREPARED -> <> (state == COMMITTED || state == ROLLED_BACK)) }
ltl cleaned { <> [] (decision[A] == FREE) }
#endif
