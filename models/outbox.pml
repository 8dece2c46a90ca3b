/*
 * One stream of an outbox (docs/decisions/0048-outbox-streams.md): rows 1 to N of a database, each delivered once.
 *
 * As for atomic.pml, `make model` has Spin go through every interleaving of what is modelled here: as the protocol is
 * meant, and once for each of the mistakes that -D compiles in. models/check.py lists the variants and what must come
 * out.
 *
 *   Program   commits row after row, claims the stream when it likes, delivers from memory what it may, deletes and
 *             releases. It can end at any step; rows are left then, and perhaps a COMMIT that is under way.
 *   Resolver  claims, reads the rows, delivers them in order, deletes what is delivered, releases. Two of them at once.
 *             They are killed and begin again.
 *   Broker    has an entry for the stream, or none. It answers only when it has forced, and nobody sees before that
 *             what it does: what a crash takes back was never carried out. So it is one step: carried out, forced,
 *             answered.
 *   Database  shows what is committed before it is on disk (InnoDB without a binary log), and answers afterwards. A
 *             crash in between takes it back. A force puts on disk all that is shown.
 *   Other     with OTHER: the holder of another stream of the same table, with nothing but its generation.
 *
 * Messages. A request, once sent, stays in the network for good, and is carried out at any time later, also again. An
 * answer, once given, can be read at any time later, when it may no longer be true. Loss is that its sender stops
 * waiting. Everybody may pause for any time between two steps.
 *
 * Epochs have no numbers here, so there may be any number of claims. No epoch comes twice, so what is asked under an
 * older one than the newest is refused for ever: a claim that is carried out, also a repeated one, drops the deliveries
 * and the release that are under way. `newest` is who asked for the newest epoch, and `adopted` says that the answer has
 * been read; before that, nobody can show it.
 *
 * Without LIVENESS nothing bounds how often things go wrong. With it, they go wrong BUDGET times and then stop; what is
 * checked then is that each committed row is delivered and gone, and the broker's entry too.
 */

#ifndef N
#define N 2           /* rows: 1 to 3                          */
#endif
#define P  0          /* the program,                          */
#define R1 1          /* two resolvers,                        */
#define R2 2
#define O  3          /* and the holder of another stream      */
#define NOBODY 4

#ifndef BUDGET
#define BUDGET 1
#endif
/*
 * What time decides, with LIVENESS: a resolver begins when no other is at work; a program does not ask again and again
 * for the release of what it does not hold.
 */
#ifdef LIVENESS
byte left = BUDGET;
byte at_work = NOBODY;
#define CAN_FAIL (left > 0)
#define FAIL left--
#ifdef IMPATIENT
#define IS_TIME true
#else
#define IS_TIME (at_work == NOBODY && !release)
#endif
#define AT_WORK(who) at_work = who
#define MAY_RELEASE VALID(P)
#else
#define CAN_FAIL true
#define FAIL skip
#define IS_TIME true
#define AT_WORK(who) skip
#ifdef WAITS
#define MAY_RELEASE (told[P] >= sent)
#else
#define MAY_RELEASE true
#endif
#endif

/* A set of numbers is a byte, with a bit for each. */
#define BIT(number) (1 << (number))
#define UPTO(number) ((2 << (number)) - 1)
#define LOWEST(set) (((set) & BIT(1)) -> 1 : (((set) & BIT(2)) -> 2 : 3))
#if N == 1
#define EACH(what) what(1)
#elif N == 2
#define EACH(what) what(1) what(2)
#else
#define EACH(what) what(1) what(2) what(3)
#endif

mtype = { NEVER, SENT, ANSWERED, OLD };                    /* a claim request; OLD: nobody waits for its answer       */
mtype = { IDLE, ASKED, SHOWN, DONE, REFUSED, LOST };       /* the transaction that commits a row                      */

bool known;                                                /* the broker's entry                                      */
byte newest = NOBODY;
bool adopted;
byte last;
byte delivered;                                            /* the rows whose messages it has stored                   */

mtype claim[3] = NEVER;                                    /* requests in the network                                 */
byte offered;                                              /* deliveries under the newest epoch,                      */
byte after[N + 1];                                         /* and what each says it comes after                       */
byte release;                                              /* 0 is none; otherwise the `last` that it says, and 1     */
byte told[3];                                              /* the newest `last` in an answer to each                  */

byte rows, disk;                                           /* the rows that are seen, and those that a crash leaves   */
mtype tx[N + 1] = IDLE;

/*
 * SET_BACK: a copy of the database is made, and put in its place later. A raise of the generation is in the transaction
 * that deletes the last rows; claims and releases carry what was read, the broker keeps the highest and refuses a lower
 * one. Whoever was connected before it was set back begins again (`life`), unless ANY_CONNECTION. CHECKED: with another
 * connection it goes on if the generation there is not lower than that of its claim.
 *
 * STAMPS, instead of numbers: each raise makes a stamp that has never been, and keeps the one before beside it. It is
 * made where the stamp is still that of the holder's claim, and rows are read together with it, if it is that. The
 * broker keeps the newest that it was told, and takes only what has it, as the newest or as the one before.
 */
#ifdef SET_BACK
#ifndef MOST
#define MOST 2                                             /* raises, at most                                         */
#endif
bool copied, set_back, life[4];
byte copy;
byte generation, disk_generation, copy_generation;         /* seen, on disk, in the copy                              */
byte claim_generation[4], release_generation;              /* in the network                                          */
byte told_generation;                                      /* at the broker                                           */
#define ACCEPTED(who) TAKES(claim_generation[who])
#define RELEASE_ACCEPTED TAKES(release_generation)
#ifdef STAMPS
byte stamps;
#define NOW(its) ((its) & 15)
#define TAKES(its) (told_generation == NOW(its) || told_generation == ((its) >> 4))
#define CAN_RAISE(who) (generation == claim_generation[who] && stamps < MOST)
#define RAISE stamps++; generation = (NOW(generation) << 4) | stamps
#define CONNECTED(who) true
#define CAN_READ(who) (generation == claim_generation[who])
#else
#define NOW(its) (its)
#ifdef NO_GENERATIONS
#define TAKES(its) true
#else
#define TAKES(its) ((its) >= told_generation)
#endif
#define CAN_RAISE(who) (CONNECTED(who) && generation < MOST)
#define RAISE generation++
#if defined(CHECKED)
#define CONNECTED(who) (generation >= claim_generation[who])
#elif defined(ANY_CONNECTION)
#define CONNECTED(who) true
#else
#define CONNECTED(who) (life[who] == set_back)
#endif
#define CAN_READ(who) CONNECTED(who)
#endif
inline read_generation(who) { claim_generation[who] = generation; life[who] = set_back }
inline tell_generation(its) {
    told_generation = NOW(its);
    assert(set_back || told_generation <= NOW(disk_generation)) /* nobody is refused if nothing was set back          */
}
#else
#define ACCEPTED(who) true
#define RELEASE_ACCEPTED true
#define CAN_RAISE(who) true
#define RAISE skip
#define CONNECTED(who) true
#define CAN_READ(who) true
#endif

/* Whether requests under the epoch that this one knows are those under the newest. */
#if defined(NOT_FENCED) || defined(WITHOUT_CLAIM)
#define VALID(who) true
#elif defined(EPOCH_COMES_AGAIN)
bool restarted, again;
#define VALID(who) ((newest == who && adopted) || (who == P && again))
#else
#define VALID(who) (newest == who && adopted)
#endif

/* What is seen gets to disk, and who waits for that is answered. */
#define ANSWER(number) if :: tx[number] == SHOWN -> tx[number] = DONE :: else fi;
inline force() {
    d_step {
        disk = rows;
#ifdef SET_BACK
        disk_generation = generation;
#endif
        EACH(ANSWER)
    }
}

/* A transaction that deletes rows. */
inline delete(number) {
    assert(!(rows & UPTO(number) & ~delivered));           /* they were delivered                                     */
    rows = rows & ~UPTO(number)
}

/* Reads the generation and has it on disk, then sends the claim. */
inline ask_claim(who) {
    d_step {
#ifndef GENERATION_SEEN
        force();
#endif
#ifdef SET_BACK
        read_generation(who);
#endif
        claim[who] = SENT
    }
}

/* Takes the answer of its claim. */
inline adopt(who) {
    d_step {
        claim[who] = OLD;
        if :: newest == who -> adopted = true :: else fi;
        sent = told[who]
    }
}

/* Sends the delivery of the lowest number in `queue`, after the highest that it has sent before. */
inline offer(queue) {
    d_step {
        low = LOWEST(queue);
        offered = offered | BIT(low);
        after[low] = sent;
        sent = low;
        queue = queue & ~BIT(low);
        low = 0
    }
}

/* Deletes what it knows to be delivered and raises the generation, in one transaction; when that is forced, asks. */
inline ask_release(who) {
    d_step {
        delete(told[who]);
        RAISE;
#ifndef RELEASED_UNFORCED
        force();
#endif
        if
        :: VALID(who) ->
            release = told[who] + 1;
#ifdef SET_BACK
            release_generation = generation;
#endif
        :: else
        fi
    }
}

#define NOT_AFTER(number) after[number] = 0;
inline drop_requests() {
#ifndef NOT_FENCED
    offered = 0;
    EACH(NOT_AFTER)
#endif
    drop_release()
}
inline drop_release() {
#ifdef SET_BACK
    release_generation = 0;
#endif
    release = 0
}

/* The broker gives the stream to `who`. */
inline give(who) {
    known = true;
    newest = who;
    adopted = false;
    drop_requests();
#ifdef SET_BACK
    tell_generation(claim_generation[who]);
#endif
#ifdef EPOCH_COMES_AGAIN
    if :: restarted -> again = true :: again = false fi;   /* the epoch is one that the program knows                 */
#endif
    skip
}

/* The broker stores messages and number. A repetition has a number that is not above `last`: it changes nothing. */
inline deliver(number) {
    assert(!(delivered >> number));                        /* neither twice nor after a higher one                    */
#ifndef SET_BACK
    assert(disk & BIT(number));                            /* and it is committed for good                            */
#endif
    delivered = delivered | BIT(number);
    known = true;
    last = number;
    if :: newest != NOBODY && adopted -> told[newest] = last :: else fi;
#ifndef NOT_FENCED
    offered = offered & ~UPTO(number);
    after[number] = 0
#endif
}

/*
 * How a COMMIT ends for the program. It keeps in memory a row whose COMMIT was sent after the answer of the claim that
 * it goes by. Any other may have been seen by somebody with an older claim: it reads before it delivers again.
 */
#ifdef TWO_OPEN
#define CAN_BEGIN true
#else
#define CAN_BEGIN (!open)
#endif
#ifdef BEFORE_CLAIM
#define IN_MEMORY(number) true
#else
#define IN_MEMORY(number) (ours & BIT(number))
#endif
#ifdef SKIPS_OLDER
#define NOT_IN_MEMORY skip
#else
#define NOT_IN_MEMORY knows_all = false
#endif
#if defined(BEFORE_CLAIM) || defined(SKIPS_OLDER)
#define NEED_NOT_READ true
#else
#define NEED_NOT_READ (n == 0)
#endif
#ifdef GOES_ON
#define UNKNOWN atomic { open = 0; ours = 0 }
#else
#define UNKNOWN goto over
#endif
#define ENDS(number) \
    tx[number] = IDLE; \
    open = open & ~BIT(number); \
    ours = ours & ~BIT(number)
#define OUTCOMES(number) \
    :: atomic { (open & BIT(number)) && tx[number] == DONE -> \
                if :: IN_MEMORY(number) -> queue = queue | BIT(number) :: else -> NOT_IN_MEMORY fi; \
                ENDS(number) } \
    :: atomic { (open & BIT(number)) && tx[number] == REFUSED -> ENDS(number) } \
    :: (open & BIT(number)) && tx[number] == LOST -> UNKNOWN

active proctype Program() {
    byte n;                                                /* the newest number                                       */
    byte open, ours;                                       /* COMMITs it waits for; those sent under its claim        */
    byte queue, sent, low;                                 /* to deliver; the highest delivery sent                   */
    bool holds, knows_all;                                 /* has it a claim; are all rows above `sent` in `queue`    */
#ifdef WITHOUT_CLAIM
    holds = true;
    knows_all = true;
#endif
    do
    /* A block: its row is inserted, and its COMMIT is sent. */
    :: atomic { n < N && CAN_BEGIN && CONNECTED(P) ->
                n++;
                tx[n] = ASKED;
                open = open | BIT(n);
                if :: holds -> ours = ours | BIT(n) :: else fi }
    EACH(OUTCOMES)
    :: atomic { CAN_FAIL && open -> FAIL; UNKNOWN }        /* the connection dies while COMMIT is under way           */
#if !defined(WITHOUT_CLAIM) && !defined(ONLY_COMMITS)
    :: atomic { !holds && claim[P] == NEVER && CONNECTED(P) -> ask_claim(P) }
    :: atomic { CAN_FAIL && !holds && claim[P] == OLD && CONNECTED(P) -> FAIL; ask_claim(P) }
    :: atomic { claim[P] == SENT && !ACCEPTED(P) -> claim[P] = OLD }
    :: atomic { claim[P] == ANSWERED -> adopt(P); holds = true; knows_all = NEED_NOT_READ }
#endif
    :: atomic { holds && !knows_all && CAN_READ(P) -> queue = queue | (rows & ~UPTO(sent)); force(); knows_all = true }
    :: atomic { holds && knows_all && queue && VALID(P) -> offer(queue) }
    /* What it sent was refused: it is fenced. */
    :: atomic { holds && !VALID(P) ->
#if WITNESS == 7
                assert(!queue);                            /* with something in memory                                */
#endif
#ifndef KEEPS_MEMORY
                queue = 0;
#endif
                holds = false; knows_all = false; ours = 0; sent = 0 }
    :: atomic { (rows & UPTO(told[P])) && CONNECTED(P) -> delete(told[P]) }
    :: atomic { holds && !release && MAY_RELEASE && CAN_RAISE(P) ->
                ask_release(P);
#ifdef WAITS
                holds = false; knows_all = false; ours = 0; sent = 0; queue = 0
#endif
              }
    :: goto over
    od;
over:
    atomic {
        n = 0; open = 0; ours = 0; queue = 0; sent = 0; holds = false; knows_all = false; told[P] = 0;
        if :: claim[P] == SENT || claim[P] == ANSWERED -> claim[P] = OLD :: else fi
    }
}

#ifndef LEFT_ALONE
/* It has ended and begins again: what it had in memory is gone, what it asked for is still under way. */
inline forget() {
    d_step {
        seen = 0; sent = 0; told[me] = 0;
#ifdef SET_BACK
        life[me] = false;
#endif
        if :: claim[me] == SENT || claim[me] == ANSWERED -> claim[me] = OLD :: else fi;
        AT_WORK(NOBODY)
    }
}

/* Reads the rows, all in one snapshot; then commits something itself, which forces what it has seen. */
inline read() {
    d_step {
#ifdef READS_EARLY
        seen = seen & ~UPTO(sent);
#elif defined(PIECEMEAL)
        seen = rows & BIT(1);
#else
        seen = rows & ~UPTO(sent);
#endif
#ifndef SEEN_ONLY
        force();
#endif
    }
}

#ifdef WAITS
#define CAN_STOP false
#else
#define CAN_STOP CAN_FAIL
#endif
#define IS_ANSWERED (!seen && told[me] >= sent)

proctype Resolver(byte me) {
    byte seen, sent, low;
end:
anew:
    if
    :: atomic { (rows || known) && IS_TIME ->
                ask_claim(me);
                AT_WORK(me);
#ifdef READS_EARLY
                seen = rows
#endif
              }
#ifdef UNKNOWN_IS_DELIVERED
    :: atomic { rows && !known -> delete(N); goto anew }
#endif
    fi;
    if
    :: atomic { claim[me] == ANSWERED && CAN_READ(me) -> adopt(me); read() }
    :: atomic { claim[me] == ANSWERED && !CAN_READ(me) -> forget(); goto anew }
    :: atomic { claim[me] == SENT && !ACCEPTED(me) -> forget(); goto anew }
    :: atomic { CAN_FAIL -> FAIL; forget(); goto anew }
    fi;
#ifdef PIECEMEAL
    atomic { seen = (seen | (rows & ~BIT(1))) & ~UPTO(sent); force() };
#endif
    do
    :: atomic { seen && VALID(me) -> offer(seen) }
    :: atomic { !IS_ANSWERED && !VALID(me) -> forget(); goto anew }
    :: atomic { IS_ANSWERED && !CAN_RAISE(me) -> forget(); goto anew }
    :: atomic { IS_ANSWERED && CAN_RAISE(me) -> ask_release(me); forget(); goto anew }
    /* It does not wait for the answers, and goes by what it was told. */
    :: atomic { CAN_STOP && !IS_ANSWERED && CAN_RAISE(me) ->
                FAIL;
#ifdef DELETES_UNANSWERED
                told[me] = sent;
#endif
                ask_release(me); forget(); goto anew }
    /* It is killed, perhaps after a transaction that is not forced yet. */
    :: atomic { CAN_FAIL ->
                FAIL;
                if
                :: CONNECTED(me) -> delete(told[me])
                :: CAN_RAISE(me) -> delete(told[me]); RAISE
                :: true
                fi;
                forget(); goto anew }
    od
}
#endif

#ifdef OTHER
/* The holder of another stream: claims, deletes its last rows with the generation raised, releases. */
active proctype Other() {
    byte its;
end:
    do
    :: atomic { TAKES(generation) -> force(); read_generation(O); tell_generation(claim_generation[O]) };
        if
        :: atomic { CONNECTED(O) && CAN_RAISE(O) -> RAISE; force(); its = generation };
            if
            :: atomic { TAKES(its) -> tell_generation(its) }
            :: true
            fi
        :: true
        fi;
        atomic { its = 0; claim_generation[O] = 0; life[O] = false }
    od
}
#endif

#ifdef NO_AFTER
#define CONTINUES(number) true
#else
#define CONTINUES(number) (after[number] == last)
#endif
#ifdef WITHOUT_CLAIM
#define IS_KNOWN true
#else
#define IS_KNOWN known
#endif
/* A release says which `last` its sender knows; if there was a delivery since, it is refused. */
#ifdef LAST_UNCHECKED
#define SAYS_LAST true
#else
#define SAYS_LAST (release == last + 1)
#endif

#define CLAIMS(who) \
    :: atomic { claim[who] == SENT && ACCEPTED(who) -> give(who); claim[who] = ANSWERED; told[who] = last } \
    :: atomic { CAN_FAIL && (claim[who] == ANSWERED || claim[who] == OLD) && ACCEPTED(who) -> \
                FAIL; \
                give(who); \
                if :: claim[who] == ANSWERED -> told[who] = last :: else fi }
#define DELIVERIES(number) \
    :: atomic { (offered & BIT(number)) && IS_KNOWN && number > last && CONTINUES(number) -> deliver(number) }

active proctype Broker() {
end:
    do
    CLAIMS(P)
    CLAIMS(R1)
#ifndef ONE_RESOLVER
    CLAIMS(R2)
#endif
    EACH(DELIVERIES)
    :: atomic { release && SAYS_LAST && RELEASE_ACCEPTED ->
                known = false; newest = NOBODY; adopted = false; last = 0;
#ifdef SET_BACK
                tell_generation(release_generation);
#endif
                drop_requests();
#if WITNESS == 5
                assert(delivered != (UPTO(N) & ~1) || rows || disk) /* all is delivered, nothing is left        */
#endif
              }
    :: atomic { release && !(SAYS_LAST && RELEASE_ACCEPTED) ->
                drop_release();
#if WITNESS == 6
                assert(false)                              /* its sender did not know of a delivery          */
#endif
              }
#ifdef EPOCH_COMES_AGAIN
    :: atomic { !restarted -> restarted = true }
#endif
    od
}

#ifdef ANSWERS_UNFORCED
#define COMMITTED DONE
#else
#define COMMITTED SHOWN
#endif
#define COMMITS(number) \
    :: atomic { tx[number] == ASKED -> rows = rows | BIT(number); tx[number] = COMMITTED } \
    :: atomic { CAN_FAIL && tx[number] == ASKED -> FAIL; tx[number] = REFUSED } \
    :: tx[number] == SHOWN -> force()
#define LOSE(number) if :: tx[number] == ASKED || tx[number] == SHOWN -> tx[number] = LOST :: else fi;

active proctype Database() {
end:
    do
    EACH(COMMITS)
    :: disk != rows -> force()
    :: atomic { CAN_FAIL ->                                /* it crashes                                              */
                FAIL;
                rows = disk;
#ifdef SET_BACK
                generation = disk_generation;
#endif
                EACH(LOSE) }
#ifdef SET_BACK
    :: disk_generation != generation -> force()
    :: atomic { !copied -> copied = true; copy = disk; copy_generation = disk_generation }
    :: atomic { copied && !set_back ->
                set_back = true;
                rows = copy; disk = copy; generation = copy_generation; disk_generation = copy_generation;
                copy = 0; copy_generation = 0;
                EACH(LOSE) }
#endif
    od
}

init {
#ifndef LEFT_ALONE
    atomic {
        run Resolver(R1);
#ifndef ONE_RESOLVER
        run Resolver(R2)
#endif
    }
#else
    skip
#endif
}

#ifdef LIVENESS
ltl delivered_and_gone { [] (rows || known -> <> (!rows && !disk && !known)) }
#endif
