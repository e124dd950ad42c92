package amqpflow_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/amqpflow/amqpflow"
)

// TestSuite is the one behaviour suite: what a service sees of this package,
// held against every peer that is there. amqptest always is; a real broker is
// where its URL stands in the environment, so the fake cannot drift from it.
func TestSuite(t *testing.T) {
	peers := []struct {
		name string
		url  string // of a real broker; "" where it is not there
		open func(t *testing.T, url string) suitePeer
	}{
		{"amqptest", "in process", openFake},
		{"artemis", os.Getenv("AMQPFLOW_ARTEMIS_URL"), openArtemis},
		{"rabbitmq", os.Getenv("AMQPFLOW_RABBITMQ_URL"), openRabbitMQ},
	}
	for _, kind := range peers {
		t.Run(kind.name, func(t *testing.T) {
			if kind.url == "" {
				t.Skip("its URL is not in the environment")
			}
			for _, b := range behaviours {
				t.Run(b.name, func(t *testing.T) { b.test(t, kind.open(t, kind.url)) })
			}
		})
	}
}

type behaviour struct {
	name string
	test func(*testing.T, suitePeer)
}

var behaviours = []behaviour{
	{"wrongPasswordFailsAtSASL", wrongPasswordFailsAtSASL},
	{"virtualHostIsTheHostname", virtualHostIsTheHostname},
	{"refusedAttachNamesTheAddress", refusedAttachNamesTheAddress},
	{"refusedAttachHarmsNoSibling", refusedAttachHarmsNoSibling},
	{"readingAttachesNoSender", readingAttachesNoSender},
	{"fortySubscriptionsShareAConnection", fortySubscriptionsShareAConnection},

	{"messageOfGoAMQPArrivesAsSent", messageOfGoAMQPArrivesAsSent},
	{"messageIDsOfEveryType", messageIDsOfEveryType},
	{"publishedMessageIsReadByGoAMQP", publishedMessageIsReadByGoAMQP},
	{"publishedAMQPMessageIsUnchanged", publishedAMQPMessageIsUnchanged},
	{"deliveryCountPassesBothWays", deliveryCountPassesBothWays},
	{"bodySectionsReadAsBytes", bodySectionsReadAsBytes},
	{"bodiesThatAreNoBytesAreRejected", bodiesThatAreNoBytesAreRejected},
	{"tooLargeIsRejectedAndTheLinkLives", tooLargeIsRejectedAndTheLinkLives},
	{"tooLargeTakesBoundedMemory", tooLargeTakesBoundedMemory},
	{"oneMiBBothWays", oneMiBBothWays},

	{"acceptedIsGone", acceptedIsGone},
	{"retriedComesBackWithAHigherCount", retriedComesBackWithAHigherCount},
	{"retriedTooOftenIsDeadLettered", retriedTooOftenIsDeadLettered},
	{"rejectedIsDeadLettered", rejectedIsDeadLettered},
	{"deadLettersAreHandledLikeAnyOther", deadLettersAreHandledLikeAnyOther},
	{"releasedComesBackWithTheSameCount", releasedComesBackWithTheSameCount},
	{"failFastLeavesTheDeliveryToThePeer", failFastLeavesTheDeliveryToThePeer},
	{"badPayloadsStopNobody", badPayloadsStopNobody},
	{"panicsAreFailuresAndTheServiceLives", panicsAreFailuresAndTheServiceLives},

	{"retryIsHeldAndComesBackCounted", retryIsHeldAndComesBackCounted},
	{"longRetryIsThePeersWhereItHoldsIt", longRetryIsThePeersWhereItHoldsIt},
	{"classicQueueHoldsNoRetry", classicQueueHoldsNoRetry},
	{"lastAttemptIsADeadLetterWithItsReason", lastAttemptIsADeadLetterWithItsReason},
	{"shutdownEndsHolds", shutdownEndsHolds},
	{"consumerTimeoutTakesTheDeliveryBack", consumerTimeoutTakesTheDeliveryBack},

	{"unroutableIsReleased", unroutableIsReleased},
	{"fullQueueRejectsWithItsReason", fullQueueRejectsWithItsReason},
	{"oversizedPublishHarmsNoOther", oversizedPublishHarmsNoOther},
	{"reservedAnnotationKeysHarmNoLink", reservedAnnotationKeysHarmNoLink},
	{"givenUpLargePublishesStayWhole", givenUpLargePublishesStayWhole},
	{"publishStormLosesNoAnswer", publishStormLosesNoAnswer},
	{"publishesLeaveInOrder", publishesLeaveInOrder},
	{"otherFieldsKeepTheDefaultPriority", otherFieldsKeepTheDefaultPriority},

	{"oneLaneKeepsItsOrder", oneLaneKeepsItsOrder},
	{"blockedLaneLeavesTheOthersRunning", blockedLaneLeavesTheOthersRunning},
	{"orderedRetryKeepsTheOrder", orderedRetryKeepsTheOrder},
	{"pauseHandsBackAndResumeGoesOn", pauseHandsBackAndResumeGoesOn},
	{"batchesAreFullOrHaveWaited", batchesAreFullOrHaveWaited},
	{"batchSettlesEachByItsMark", batchSettlesEachByItsMark},
	{"panicInABatchSettlesEachOnce", panicInABatchSettlesEachOnce},

	{"replyCarriesTheRequestsID", replyCarriesTheRequestsID},
	{"refusedReplyIsARetry", refusedReplyIsARetry},
	{"missingReplyAddressIsRejected", missingReplyAddressIsRejected},
	{"failedHandlerSendsNoReply", failedHandlerSendsNoReply},
	{"manyWorkersReplyEachToItsOwn", manyWorkersReplyEachToItsOwn},
	{"busyHandlersNeverDeadlock", busyHandlersNeverDeadlock},

	{"streamAtShutdownYieldsWhatItHolds", streamAtShutdownYieldsWhatItHolds},
	{"streamPastItsBoundCannotSettle", streamPastItsBoundCannotSettle},
	{"messagesYieldsWhatCannotBeDecoded", messagesYieldsWhatCannotBeDecoded},

	{"sendsArriveInOrderConfirmedOnce", sendsArriveInOrderConfirmedOnce},
	{"publishBetweenSendsWaitsForThem", publishBetweenSendsWaitsForThem},
	{"receiptsAnswerAnybodyAtAnyTime", receiptsAnswerAnybodyAtAnyTime},
	{"shutdownWaitsForSendsUnderWay", shutdownWaitsForSendsUnderWay},

	{"hundredSubscriptionsStayWithinTheLimits", hundredSubscriptionsStayWithinTheLimits},
	{"linkAboveTheLimitIsAnAttachError", linkAboveTheLimitIsAnAttachError},
	{"tenThousandAddressesThroughTwoHundredLinks", tenThousandAddressesThroughTwoHundredLinks},
	{"refusedAddressHarmsNoPublisher", refusedAddressHarmsNoPublisher},
	{"subscribeAndCloseLeavesNothing", subscribeAndCloseLeavesNothing},
	{"givenUpAttachesLeaveNothing", givenUpAttachesLeaveNothing},
	{"everySubscriptionOfATopicGetsACopy", everySubscriptionOfATopicGetsACopy},

	{"shutdownReleasesWhatWasNotBegun", shutdownReleasesWhatWasNotBegun},
	{"settledBeforeShutdownStaysSettled", settledBeforeShutdownStaysSettled},
	{"shutdownGoesFromTheInsideOut", shutdownGoesFromTheInsideOut},
	{"idleShutdownIsPrompt", idleShutdownIsPrompt},
	{"shutdownKeepsItsBound", shutdownKeepsItsBound},

	{"unsettledNeverExceedsCredit", unsettledNeverExceedsCredit},

	{"forceDetachedLinksAreMadeAgain", forceDetachedLinksAreMadeAgain},
	{"cutConnectionsLoseNothing", cutConnectionsLoseNothing},
	{"sharedMessagesArriveWhole", sharedMessagesArriveWhole},
	{"busyHandlersSurviveACut", busyHandlersSurviveACut},
	{"orderSurvivesCutsAndShutdown", orderSurvivesCutsAndShutdown},
	{"changedPasswordIsReported", changedPasswordIsReported},
}

// patience is how long a behaviour waits for what must come. Only a failure
// takes that long.
const patience = 30 * time.Second

// await returns what ch brings, and fails the test when nothing comes in d.
func await[T any](t *testing.T, d time.Duration, ch <-chan T) T {
	t.Helper()
	guard := time.NewTimer(d)
	defer guard.Stop()
	select {
	case v := <-ch:
		return v
	case <-guard.C:
		require.FailNow(t, "nothing came", "within %v", d)
		panic("unreachable")
	}
}

// patient is a context for what must succeed.
func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// mustConnect connects b, and shuts it down when the test ends.
func mustConnect(t *testing.T, b *amqpflow.Broker) {
	t.Helper()
	t.Cleanup(func() { shutDown(t, b) })
	require.NoError(t, b.Connect(patient(t)))
}

// shutDown shuts b down, cleanly.
func shutDown(t *testing.T, b *amqpflow.Broker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(t, b.Shutdown(ctx))
}

// canary measures how late timers fire while it lives: what a busy machine
// adds to every time bound.
type canary struct {
	wg    sync.WaitGroup
	stop  chan struct{} // closed by lateness
	worst atomic.Int64
}

func newCanary() *canary {
	c := &canary{stop: make(chan struct{})}
	c.wg.Go(c.run)
	return c
}

func (c *canary) run() {
	const period = 5 * time.Millisecond
	timer := time.NewTimer(period)
	defer timer.Stop()
	due := time.Now().Add(period)
	for {
		select {
		case <-timer.C:
		case <-c.stop:
			return
		}
		if late := int64(time.Since(due)); late > c.worst.Load() {
			c.worst.Store(late)
		}
		timer.Reset(period)
		due = time.Now().Add(period)
	}
}

// lateness ends the canary.
func (c *canary) lateness() time.Duration {
	close(c.stop)
	c.wg.Wait()
	return time.Duration(c.worst.Load())
}

// requireBound holds took against a bound that the machine may stretch.
func requireBound(t *testing.T, what string, took, bound time.Duration, c *canary) {
	t.Helper()
	late := c.lateness()
	allowed := bound + 100*time.Millisecond + late
	t.Logf("%s took %v of %v: %v, 100ms, and %v that timers were late", what, took, allowed, bound, late)
	require.LessOrEqual(t, took, allowed, what)
}

// gathered holds what handlers or observers of several goroutines report.
type gathered[T any] struct {
	mu    sync.Mutex
	items []T
}

func (g *gathered[T]) add(v T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.items = append(g.items, v)
}

func (g *gathered[T]) all() []T {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]T(nil), g.items...)
}

// await returns the items once there are n, and fails the test if there come
// more or fewer.
func (g *gathered[T]) await(t *testing.T, n int) []T {
	t.Helper()
	require.Eventually(t, func() bool { return len(g.all()) >= n }, patience, 5*time.Millisecond)
	items := g.all()
	require.Len(t, items, n)
	return items
}

var nameSerial atomic.Uint64

// uniqueName is a name that no other run and no other test has.
func uniqueName() string {
	return fmt.Sprintf("amqpflow-suite-%d-%d-%d", os.Getpid(), time.Now().UnixNano(), nameSerial.Add(1))
}
