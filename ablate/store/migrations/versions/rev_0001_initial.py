"""The first tables."""

import sqlalchemy as sa
from alembic import op



revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table('architectures',
    sa.Column('hash', sa.String(length=20), nullable=False),
    sa.Column('backbone', sa.String(length=100), nullable=False),
    sa.Column('image_size', sa.Integer(), nullable=False),
    sa.Column('channels', sa.Integer(), nullable=False),
    sa.Column('classes', sa.Integer(), nullable=False),
    sa.Column('settings', sa.JSON(), nullable=False, comment='canonical: what differs from the backbone'),
    sa.Column('params', sa.BigInteger(), nullable=False),
    sa.Column('flops', sa.BigInteger(), nullable=False, comment='executed multiply-adds of one image'),
    sa.Column('flops_paper', sa.BigInteger(), nullable=False, comment="multiply-adds of one image by the papers' convention"),
    sa.Column('activations', sa.BigInteger(), nullable=False),
    sa.Column('elementwise', sa.BigInteger(), nullable=False),
    sa.Column('cost_revision', sa.Integer(), nullable=False, comment='revision of the counting rules'),
    sa.PrimaryKeyConstraint('hash', name=op.f('pk_architectures'))
    )
    op.create_table('stores',
    sa.Column('id', sa.String(length=12), nullable=False, comment='drawn when the store was made; checkpoints stand under it'),
    sa.Column('created_at', sa.DateTime(), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_stores'))
    )
    op.create_table('studies',
    sa.Column('id', sa.Integer(), nullable=False),
    sa.Column('name', sa.String(length=200), nullable=False),
    sa.Column('question', sa.Text(), nullable=False),
    sa.Column('expect', sa.Text(), nullable=False),
    sa.Column('source', sa.Text(), nullable=False),
    sa.Column('metric', sa.String(length=20), nullable=False),
    sa.Column('direction', sa.String(length=3), nullable=False),
    sa.Column('document', sa.Text(), nullable=False, comment='the YAML text as it was last run'),
    sa.Column('file', sa.Text(), nullable=False),
    sa.Column('results_view', sa.String(length=200), nullable=False, comment="name of the study's wide results view"),
    sa.Column('created_at', sa.DateTime(), nullable=False),
    sa.Column('updated_at', sa.DateTime(), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_studies')),
    sa.UniqueConstraint('name', name=op.f('uq_studies_name'))
    )
    op.create_table('cells',
    sa.Column('id', sa.Integer(), nullable=False),
    sa.Column('study_id', sa.Integer(), nullable=False),
    sa.Column('number', sa.Integer(), nullable=False, comment="row of the study's table, from 0"),
    sa.Column('role', sa.String(length=10), nullable=False, comment='reference, baseline or variant'),
    sa.Column('architecture_hash', sa.String(length=20), nullable=True),
    sa.Column('same_as', sa.Integer(), nullable=True, comment='number of the cell that this one repeats'),
    sa.Column('note', sa.Text(), nullable=False, comment='why it repeats another cell or cannot be built'),
    sa.ForeignKeyConstraint(['architecture_hash'], ['architectures.hash'], name=op.f('fk_cells_architecture_hash')),
    sa.ForeignKeyConstraint(['study_id'], ['studies.id'], name=op.f('fk_cells_study_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_cells')),
    sa.UniqueConstraint('study_id', 'number', name=op.f('uq_cells_study_id'))
    )
    op.create_table('provenance',
    sa.Column('id', sa.Integer(), nullable=False),
    sa.Column('study_id', sa.Integer(), nullable=False),
    sa.Column('started_at', sa.DateTime(), nullable=False),
    sa.Column('document', sa.Text(), nullable=False, comment='the YAML text of this run'),
    sa.Column('command', sa.Text(), nullable=False),
    sa.Column('ablate', sa.String(length=40), nullable=False),
    sa.Column('commit', sa.String(length=40), nullable=False),
    sa.Column('dirty', sa.Boolean(), nullable=False),
    sa.Column('python', sa.String(length=40), nullable=False),
    sa.Column('torch', sa.String(length=40), nullable=False),
    sa.Column('timm', sa.String(length=40), nullable=False),
    sa.Column('ray', sa.String(length=40), nullable=False),
    sa.Column('platform', sa.String(length=200), nullable=False),
    sa.Column('host', sa.String(length=200), nullable=False),
    sa.Column('cpu', sa.String(length=200), nullable=False),
    sa.Column('cores', sa.Integer(), nullable=False),
    sa.Column('memory_gb', sa.Float(), nullable=False),
    sa.Column('gpus', sa.Text(), nullable=False),
    sa.ForeignKeyConstraint(['study_id'], ['studies.id'], name=op.f('fk_provenance_study_id')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_provenance'))
    )
    op.create_table('trials',
    sa.Column('hash', sa.String(length=20), nullable=False),
    sa.Column('architecture_hash', sa.String(length=20), nullable=False),
    sa.Column('recipe', sa.JSON(), nullable=False, comment='canonical: what differs from the default recipe'),
    sa.Column('data', sa.JSON(), nullable=False),
    sa.Column('seed', sa.BigInteger(), nullable=False),
    sa.Column('epochs', sa.Integer(), nullable=False, comment='epochs asked for'),
    sa.Column('status', sa.String(length=10), nullable=False),
    sa.Column('epochs_done', sa.Integer(), nullable=False),
    sa.Column('train_loss', sa.Float(), nullable=True, comment='this and the next four: at the last epoch, once completed'),
    sa.Column('loss', sa.Float(), nullable=True),
    sa.Column('top1', sa.Float(), nullable=True),
    sa.Column('top5', sa.Float(), nullable=True),
    sa.Column('seconds', sa.Float(), nullable=True, comment='training and testing, all epochs'),
    sa.Column('ended_at', sa.DateTime(), nullable=True),
    sa.ForeignKeyConstraint(['architecture_hash'], ['architectures.hash'], name=op.f('fk_trials_architecture_hash')),
    sa.PrimaryKeyConstraint('hash', name=op.f('pk_trials'))
    )
    op.create_index('ix_trials_architecture_hash', 'trials', ['architecture_hash'], unique=False)
    op.create_table('attempts',
    sa.Column('id', sa.Integer(), nullable=False),
    sa.Column('trial_hash', sa.String(length=20), nullable=False),
    sa.Column('provenance_id', sa.Integer(), nullable=False),
    sa.Column('number', sa.Integer(), nullable=False, comment='from 1'),
    sa.Column('status', sa.String(length=12), nullable=False, comment="running, lost, interrupted, or the trial's status at its end"),
    sa.Column('executor', sa.String(length=20), nullable=False),
    sa.Column('host', sa.String(length=200), nullable=False),
    sa.Column('pid', sa.Integer(), nullable=False),
    sa.Column('device', sa.String(length=20), nullable=False),
    sa.Column('threads', sa.Integer(), nullable=False),
    sa.Column('first_epoch', sa.Integer(), nullable=False, comment='epochs that its checkpoint had already'),
    sa.Column('started_at', sa.DateTime(), nullable=False),
    sa.Column('ended_at', sa.DateTime(), nullable=True),
    sa.Column('error', sa.Text(), nullable=False),
    sa.ForeignKeyConstraint(['provenance_id'], ['provenance.id'], name=op.f('fk_attempts_provenance_id')),
    sa.ForeignKeyConstraint(['trial_hash'], ['trials.hash'], name=op.f('fk_attempts_trial_hash')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_attempts')),
    sa.UniqueConstraint('trial_hash', 'number', name=op.f('uq_attempts_trial_hash'))
    )
    op.create_table('cell_trials',
    sa.Column('cell_id', sa.Integer(), nullable=False),
    sa.Column('seed', sa.BigInteger(), nullable=False),
    sa.Column('trial_hash', sa.String(length=20), nullable=False),
    sa.ForeignKeyConstraint(['cell_id'], ['cells.id'], name=op.f('fk_cell_trials_cell_id'), ondelete='CASCADE'),
    sa.ForeignKeyConstraint(['trial_hash'], ['trials.hash'], name=op.f('fk_cell_trials_trial_hash')),
    sa.PrimaryKeyConstraint('cell_id', 'seed', name=op.f('pk_cell_trials'))
    )
    op.create_index('ix_cell_trials_trial_hash', 'cell_trials', ['trial_hash'], unique=False)
    op.create_table('epochs',
    sa.Column('trial_hash', sa.String(length=20), nullable=False),
    sa.Column('number', sa.Integer(), nullable=False, comment='from 1'),
    sa.Column('train_loss', sa.Float(), nullable=False),
    sa.Column('loss', sa.Float(), nullable=False),
    sa.Column('top1', sa.Float(), nullable=False, comment='per cent'),
    sa.Column('top5', sa.Float(), nullable=False, comment='per cent'),
    sa.Column('lr', sa.Float(), nullable=False),
    sa.Column('seconds', sa.Float(), nullable=False),
    sa.ForeignKeyConstraint(['trial_hash'], ['trials.hash'], name=op.f('fk_epochs_trial_hash')),
    sa.PrimaryKeyConstraint('trial_hash', 'number', name=op.f('pk_epochs'))
    )
    op.create_table('levels',
    sa.Column('cell_id', sa.Integer(), nullable=False),
    sa.Column('factor', sa.String(length=100), nullable=False),
    sa.Column('position', sa.Integer(), nullable=False, comment='place of the factor in the study'),
    sa.Column('level', sa.JSON(), nullable=False),
    sa.Column('read', sa.Boolean(), nullable=False, comment="whether the model reads the factor at this cell's levels"),
    sa.Column('text', sa.String(length=200), nullable=False),
    sa.Column('number', sa.Float(), nullable=True, comment='where the level is a number'),
    sa.ForeignKeyConstraint(['cell_id'], ['cells.id'], name=op.f('fk_levels_cell_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('cell_id', 'factor', name=op.f('pk_levels'))
    )


def downgrade() -> None:
    raise RuntimeError("this is the first revision")
