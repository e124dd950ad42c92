// The round of README.md by rhea: node rhea.js URL
'use strict';

const assert = require('node:assert/strict');
const rhea = require('rhea');

const MIB = Buffer.alloc(1 << 20, Uint8Array.from({ length: 251 }, (_, i) => i));

const happens = (emitter, event) => new Promise((resolve) => { emitter.once(event, resolve); });

// Inbox is a receiving link that is read by waiting for the next message.
class Inbox {
  constructor(connection, options) {
    this.arrived = [];
    this.link = connection.open_receiver({ credit_window: 0, autoaccept: false, ...options });
    this.link.on('message', (context) => { this.arrived.push(context); });
  }

  async next() {
    while (this.arrived.length === 0) await happens(this.link, 'message');
    return this.arrived.shift();
  }

  close() {
    this.link.close();
    return happens(this.link, 'receiver_close');
  }
}

async function read(connection, options, credit, use) {
  const inbox = new Inbox(connection, options);
  inbox.link.add_credit(credit);
  await use(inbox);
  await inbox.close();
}

async function write(connection, address, ...messages) {
  const sender = connection.open_sender(address);
  for (const message of messages) {
    if (!sender.sendable()) await happens(sender, 'sendable');
    sender.send(message);
    await happens(sender, 'accepted');
  }
  sender.close();
  await happens(sender, 'sender_close');
}

const message = (id) => ({ message_id: id, body: rhea.message.data_section(Buffer.from(`body of ${id}`)) });

async function expect(inbox, id) {
  const context = await inbox.next();
  assert.equal(context.message.message_id, id);
  context.delivery.accept();
  return context.message;
}

async function answer(c) {
  await read(c, { source: 'requests' }, 1, async (inbox) => {
    const { message: request, delivery } = await inbox.next();
    const body = rhea.message.data_section(Buffer.from(request.body.content.toString().toUpperCase()));
    await write(c, request.reply_to, { correlation_id: request.message_id, body });
    delivery.accept();
  });
}

const steps = {
  async send(c) {
    await write(c, 'sent', ...Array.from({ length: 10 }, (_, i) => message(`s-${i}`)));
  },

  async receive(c) {
    await read(c, { source: 'sent' }, 10, async (inbox) => {
      for (let i = 0; i < 10; i++) {
        assert.equal((await expect(inbox, `s-${i}`)).body.content.toString(), `body of s-${i}`);
      }
    });
  },

  async outcomes(c) {
    await write(c, 'outcomes', ...['accepted', 'rejected', 'released', 'modified'].map(message));
    await read(c, { source: 'outcomes' }, 6, async (inbox) => {
      const got = {};
      for (let i = 0; i < 4; i++) {
        const context = await inbox.next();
        got[context.message.message_id] = context.delivery;
      }
      const outcomes = [
        () => got.accepted.accept(),
        () => got.rejected.reject({ condition: 'interop:unwanted', description: 'a description' }),
        () => got.released.release(),
        () => got.modified.modified({ delivery_failed: true }),
      ];
      for (const outcome of outcomes) {
        outcome();
        // Of two deliveries settled in one turn, rhea 3.0.5 gives the second
        // the outcome of the first: it compares outcomes from the third on.
        await new Promise(setImmediate);
      }
      const counts = {};
      for (let i = 0; i < 2; i++) {
        const context = await inbox.next();
        counts[context.message.message_id] = context.message.delivery_count || 0;
        context.delivery.accept();
      }
      assert.deepEqual(counts, { released: 0, modified: 1 });
    });
  },

  async redelivery(c) {
    await write(c, 'redelivered', message('r-0'));
    await read(c, { source: 'redelivered' }, 1, async (inbox) => {
      assert.equal((await inbox.next()).message.message_id, 'r-0');
    });
    await read(c, { source: 'redelivered' }, 1, (inbox) => expect(inbox, 'r-0'));
  },

  async request(c) {
    const inbox = new Inbox(c, { source: { dynamic: true } });
    await happens(inbox.link, 'receiver_open');
    inbox.link.add_credit(1);
    const body = rhea.message.data_section(Buffer.from('lamp'));
    await write(c, 'requests', { message_id: 'q-0', reply_to: inbox.link.source.address, body });
    await answer(c);
    const reply = await inbox.next();
    assert.equal(reply.message.body.content.toString(), 'LAMP');
    assert.equal(reply.message.correlation_id, 'q-0');
    reply.delivery.accept();
    await inbox.close();
  },

  async large(c) {
    await write(c, 'large', { message_id: 'l-0', body: rhea.message.data_section(MIB) });
    await read(c, { source: 'large' }, 1, async (inbox) => {
      assert.ok((await expect(inbox, 'l-0')).body.content.equals(MIB), 'the body came back');
    });
  },

  async drain(c) {
    await write(c, 'drained', ...['d-0', 'd-1', 'd-2'].map(message));
    await read(c, { source: 'drained' }, 10, async (inbox) => {
      for (let i = 0; i < 3; i++) await expect(inbox, `d-${i}`);
      assert.equal(inbox.link.credit, 7);
      inbox.link.drain_credit();
      await happens(inbox.link, 'receiver_drained');
      assert.equal(inbox.link.credit, 0);
      assert.equal(inbox.arrived.length, 0);
    });
  },

  async browse(c) {
    await write(c, 'browsed', ...['b-0', 'b-1'].map(message));
    for (const source of [{ address: 'browsed', distribution_mode: 'copy' }, 'browsed']) {
      await read(c, { source }, 2, async (inbox) => {
        for (let i = 0; i < 2; i++) await expect(inbox, `b-${i}`);
      });
    }
  },

  async idle(c) {
    await new Promise((resolve) => { setTimeout(resolve, 4000); });
    await write(c, 'idle', message('i-0'));
    await read(c, { source: 'idle' }, 1, (inbox) => expect(inbox, 'i-0'));
  },
};

async function main(url) {
  const connection = rhea.connect({
    host: url.hostname, port: url.port, username: url.username, password: url.password,
    idle_time_out: 500, reconnect: false,
  });
  await happens(connection, 'connection_open');
  for (const [name, step] of Object.entries(steps)) {
    await step(connection);
    console.log('ok', name);
  }
  connection.close();
  await happens(connection, 'connection_close');
}

main(new URL(process.argv[2]));
